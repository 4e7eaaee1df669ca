"""The decoder of the Adaptively Sparse Transformer as a language model, and its sizes."""

from __future__ import annotations

from typing import Optional

from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelConfig

from ..errors import UserError
from .heads import SparseHeads
from .layers import AdaptivelySparseDecoder
from .settings import (
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
    "_tiny": {
        "decoder_embed_dim": 128,
        "decoder_ffn_embed_dim": 256,
        "decoder_layers": 4,
        "decoder_attention_heads": 4,
    },
}


@register("adaptively_sparse_transformer_lm", LanguageModelSettings, SIZES)
class AdaptivelySparseLanguageModel(SparseHeads, TransformerLanguageModel):
    """fairseq's ``transformer_lm`` with α-entmax attention, for the task ``language_modeling``.

    Takes the flags of ``transformer_lm`` except ``--character-embeddings`` and ``--adaptive-input``, those of
    :class:`~user_dir.attention.AlphaConfig`, and ``--output-alpha``. Parameters have the names of the stock
    model; each attention additionally has an ``alpha``.
    """

    @classmethod
    def build_model(cls, args, task):
        """Build the model for ``task``; raises UserError for settings that contradict each other."""
        args = as_namespace(args)
        if args.adaptive_input:
            raise UserError("--adaptive-input is not possible with this model")
        for name in ("decoder_input_dim", "decoder_output_dim"):
            if getattr(args, name) is None:
                setattr(args, name, args.decoder_embed_dim)
        args.decoder_normalize_before = True  # as in fairseq's transformer_lm, whose training needs it
        args.max_target_positions = task.args.max_target_positions or task.args.tokens_per_sample
        decoder = AdaptivelySparseDecoder(
            TransformerConfig.from_namespace(args),
            task.target_dictionary,
            cls.build_embedding(args, task.source_dictionary, args.decoder_input_dim),
            no_encoder_attn=True,
        )
        model = cls(decoder)
        model.set_up_heads(args)
        return model
