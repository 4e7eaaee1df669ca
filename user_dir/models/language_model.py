"""The decoder of the Adaptively Sparse Transformer as a language model, and its sizes."""

from __future__ import annotations

from typing import Optional

from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelConfig
from fairseq.modules import AdaptiveInput
from fairseq.utils import eval_str_list

from .heads import SparseHeads
from .layers import AdaptivelySparseDecoder
from .settings import (
    Configured,
    OutputSettings,
    alpha_settings,
    as_namespace,
    flattened,
    make_settings,
    register,
    setting,
)

LanguageModelSettings = make_settings(
    "LanguageModelSettings",
    [
        *flattened(TransformerLanguageModelConfig),
        setting("decoder_input_dim", Optional[int], None, "decoder input dimension"),
        setting("decoder_output_dim", Optional[int], None, "decoder output dimension"),
        *alpha_settings(),
        *flattened(OutputSettings),
    ],
)
SIZES = {
    # That of fairseq's transformer_lm: 6 layers of 512 channels.
    "": {},
    # 4 layers, for small corpora and CPUs.
    "_tiny": {
        "decoder_embed_dim": 128,
        "decoder_ffn_embed_dim": 256,
        "decoder_layers": 4,
        "decoder_attention_heads": 4,
    },
    # That of fairseq's transformer_lm_wiki103, with adaptive input and softmax (Baevski and Auli 2019).
    "_wiki103": {
        "decoder_embed_dim": 1024,
        "decoder_ffn_embed_dim": 4096,
        "decoder_layers": 16,
        "decoder_attention_heads": 8,
        "dropout": 0.3,
        "attention_dropout": 0.1,
        "activation_dropout": 0.1,
        "adaptive_input": True,
        "tie_adaptive_weights": True,
        "adaptive_input_cutoff": "20000,60000",
        "adaptive_softmax_cutoff": "20000,60000",
        "adaptive_softmax_dropout": 0.2,
        "no_decoder_final_norm": True,
        "tie_adaptive_proj": True,
    },
}


@register("adaptively_sparse_transformer_lm", LanguageModelSettings, SIZES)
class AdaptivelySparseLanguageModel(Configured, SparseHeads, TransformerLanguageModel):
    """fairseq's ``transformer_lm`` with α-entmax attention, for the task ``language_modeling``.

    Takes the flags of ``transformer_lm`` except ``--character-embeddings``, those of
    :class:`~user_dir.attention.AlphaConfig`, and ``--output-alpha``. Parameters have the names of the stock
    model; each attention additionally has an ``alpha``.
    """

    @classmethod
    def build_model(cls, args, task):
        """Build the model for ``task``; raises UserError for settings that contradict each other."""
        args = as_namespace(args)
        for name in ("decoder_input_dim", "decoder_output_dim"):
            if getattr(args, name) is None:
                setattr(args, name, args.decoder_embed_dim)
        args.decoder_normalize_before = True  # as in fairseq's transformer_lm, whose training needs it
        args.max_target_positions = task.args.max_target_positions or task.args.tokens_per_sample
        decoder = AdaptivelySparseDecoder(
            TransformerConfig.from_namespace(args),
            task.target_dictionary,
            _embedding(cls, args, task.source_dictionary),
            no_encoder_attn=True,
        )
        model = cls(decoder)
        model.set_up_heads(args)
        return model


def _embedding(cls, args, dictionary):
    """The embedding of the input; adaptive as in Baevski and Auli 2019 (https://arxiv.org/abs/1809.10853)."""
    if not args.adaptive_input:
        return cls.build_embedding(args, dictionary, args.decoder_input_dim)
    return AdaptiveInput(
        len(dictionary),
        dictionary.pad(),
        args.decoder_input_dim,
        args.adaptive_input_factor,
        args.decoder_embed_dim,
        eval_str_list(args.adaptive_input_cutoff, type=int),
        args.quant_noise_pq,
        args.quant_noise_pq_block_size,
    )
