"""Automatic post-editing with one BERT as encoder and decoder (Correia and Martins 2019)."""

from __future__ import annotations

from typing import Optional

from fairseq.models.transformer import TransformerConfig
from torch import nn

from ..corpora.pieces import separator_of
from ..errors import UserError
from ..models.layers import layers_of, output_normalizer
from ..models.settings import as_namespace, make_settings, register, setting
from ..models.transformer import AdaptivelySparseTransformerModel, TransformerSettings
from .bert import BertDecoder, BertEncoder, set_eps
from .copy_gate import CopyingBertDecoder
from .pretrained import start_bert, start_from

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")
# fairseq's settings that would change BERT's layers or embeddings.
REFUSED = (
    *("encoder_normalize_before", "decoder_normalize_before", "adaptive_input", "adaptive_softmax_cutoff"),
    *("cross_self_attention", "no_cross_attention", "no_decoder_final_norm", "encoder_embed_path"),
    *("decoder_embed_path", "encoder_layers_to_keep", "decoder_layers_to_keep", "merge_src_tgt_embed"),
    *("tie_adaptive_weights", "quant_noise_pq", "base_layers", "latent_alignment"),
)
BERT_SETTINGS = [
    setting(
        "bert",
        Optional[str],
        None,
        "start from this BERT: a folder as Hugging Face lays it out, or a checkpoint of "
        "adaptively_sparse_masked_lm",
    ),
    setting("layer_norm_eps", Optional[float], None, "ε of every LayerNorm (default: 1e-12, or the BERT's)"),
    # Encoder and decoder are one BERT.
    setting("decoder_layers", Optional[int], None, "as many as the encoder's"),
    setting("decoder_attention_heads", Optional[int], None, "as many as the encoder's"),
]
PostEditorSettings = make_settings(
    "PostEditorSettings",
    [
        *BERT_SETTINGS,
        setting("decoder_init", str, "bert", "start of the decoder's layers: random, or bert, the encoder's"),
        setting(
            "context_init",
            str,
            "self",
            "start of the context attention's projections: random, or self, the self-attention's",
        ),
        setting(
            "share_self_attention", bool, False, "the self-attentions of both sides share their projections"
        ),
        setting("tie_context_attention", bool, False, "context and self-attention share their projections"),
        setting("share_feed_forward", bool, False, "encoder and decoder share their feed-forward networks"),
        setting("drop_sep", bool, False, "remove [SEP] from the input once segments and positions are known"),
        setting("ema_warmup", bool, False, "decay of --store-ema: at most (t + 1) / (t + 10) at update t"),
        setting(
            "copy_gate",
            Optional[float],
            None,
            "copy from the machine translation unless a gate opens: α-entmax with this α, from 1 to 2; train "
            "with --criterion post_editing_loss (default: no gate)",
        ),
        setting(
            "new_piece_penalty",
            float,
            0.0,
            "when translating, subtract this from the logits of pieces that are not in the input",
        ),
    ],
    base=TransformerSettings,
)


BERT = {
    "encoder_embed_dim": 768,
    "encoder_ffn_embed_dim": 3072,
    "encoder_layers": 12,
    "encoder_attention_heads": 12,
    "activation_fn": "gelu",
    "attention_dropout": 0.1,
    "encoder_learned_pos": True,
    "decoder_learned_pos": True,
    "max_source_positions": 512,
    "max_target_positions": 512,
}
# For small corpora and CPUs.
TINY = {"encoder_embed_dim": 128, "encoder_ffn_embed_dim": 512, "encoder_layers": 4}
SIZES = {"": BERT, "_base": BERT, "_tiny": {**BERT, **TINY, "encoder_attention_heads": 4}}


def make_bert(args) -> None:
    """Set what makes the model a BERT; raises UserError for settings that would make it another."""
    for name in REFUSED:
        if getattr(args, name):
            raise UserError(f"--{name.replace('_', '-')} would change BERT's layers; omit it")
    for name in ("embed_dim", "ffn_embed_dim", "layers", "attention_heads"):
        ours, theirs = getattr(args, f"encoder_{name}"), getattr(args, f"decoder_{name}")
        if theirs not in (None, ours):
            raise UserError(f"encoder and decoder are one BERT, but have {name} {ours} and {theirs}")
        setattr(args, f"decoder_{name}", ours)
    args.no_scale_embedding = args.no_token_positional_embeddings = True
    args.share_all_embeddings = args.share_decoder_input_output_embed = True
    args.layernorm_embedding = True


@register("adaptively_sparse_post_editor", PostEditorSettings, SIZES)
class AdaptivelySparsePostEditor(AdaptivelySparseTransformerModel):
    """BERT as encoder and decoder, with α-entmax attention, which corrects machine translations.

    The source is ``src [SEP] mt``, the target the corrected translation, in one vocabulary. Takes the
    settings of ``adaptively_sparse_transformer`` but those that would change BERT's layers.
    """

    @classmethod
    def build_model(cls, args, task):
        """Build the model for ``task``; raises UserError for settings that contradict each other."""
        args = as_namespace(args)
        if task.source_dictionary != task.target_dictionary:
            raise UserError(
                "source and target have different dictionaries, but encoder and decoder are one BERT; "
                "use fairseq-preprocess --joined-dictionary"
            )
        make_bert(args)
        for name, choices in (("decoder_init", ("random", "bert")), ("context_init", ("random", "self"))):
            if getattr(args, name) not in choices:
                flag = name.replace("_", "-")
                raise UserError(f"--{flag} is {getattr(args, name)!r}, but must be {' or '.join(choices)}")
        bert = start_bert(args)
        model = super().build_model(args, task)
        encoder, decoder = model.encoder, model.decoder
        for table in ("positions", "segments"):
            setattr(decoder.embed_positions, table, getattr(encoder.input_positions, table))
        set_eps(model, args.layer_norm_eps)
        encoder.drops_separator = args.drop_sep
        model.ema_warmup = args.ema_warmup  # read by the guard of moving averages
        decoder.new_piece_penalty = float(args.new_piece_penalty)
        if bert is not None:
            bert.load_encoder(encoder, task.source_dictionary)
            if args.decoder_init == "bert":
                bert.load_layers(layers_of(decoder))
                start_from(decoder.layernorm_embedding, encoder.layernorm_embedding)
        for source, layer in zip(layers_of(encoder), layers_of(decoder)):
            if args.share_self_attention:
                _share_projections(layer.self_attn, source.self_attn)
            start_from(layer.encoder_attn_layer_norm, layer.self_attn_layer_norm)
            for name in PROJECTIONS if args.context_init == "self" else ():
                start_from(getattr(layer.encoder_attn, name), getattr(layer.self_attn, name))
            if args.tie_context_attention:
                _share_projections(layer.encoder_attn, layer.self_attn)
            if args.share_feed_forward:
                layer.fc1, layer.fc2 = source.fc1, source.fc2
        return model

    @classmethod
    def build_encoder(cls, args, src_dict, embed_tokens):
        """See fairseq."""
        return BertEncoder(TransformerConfig.from_namespace(args), src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, args, tgt_dict, embed_tokens):
        """See fairseq."""
        cfg, alpha = TransformerConfig.from_namespace(args), args.copy_gate
        if alpha is None:
            return BertDecoder(cfg, tgt_dict, embed_tokens)
        if not 1 <= alpha <= 2:
            raise UserError(f"--copy-gate must be a number from 1 to 2, not {alpha:g}")
        if not output_normalizer(args).is_softmax:
            raise UserError("--copy-gate cannot be combined with --output-alpha")
        return CopyingBertDecoder(cfg, tgt_dict, embed_tokens, alpha, separator_of(tgt_dict.indices))


def _share_projections(attention: nn.Module, other: nn.Module) -> None:
    """Share projections but no α: context attention, for one, needs another sparsity than self-attention."""
    for name in PROJECTIONS:
        setattr(attention, name, getattr(other, name))
