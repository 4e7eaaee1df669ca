"""Automatic post-editing with one BERT as encoder and decoder (Correia and Martins 2019)."""

from __future__ import annotations

from fairseq.models import register_model
from fairseq.models.transformer import TransformerConfig
from torch import nn

from ..corpora.reserved import separator_of
from ..errors import UserError
from .adaptively_sparse_transformer import AdaptivelySparseTransformerModel
from .bert_files import start_bert
from .bert_sides import BertDecoder, BertEncoder, set_eps
from .bert_weights import start_from
from .copying_decoder import CopyingBertDecoder
from .latent_alignment import latent_alignment
from .post_editor_flags import add_post_editor_flags
from .sides import layers_of

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")


@register_model("adaptively_sparse_post_editor")
class AdaptivelySparsePostEditor(AdaptivelySparseTransformerModel):
    """BERT as encoder and decoder, with α-entmax attention, which corrects machine translations.

    The source is ``src [SEP] mt``, the target the corrected translation, in one vocabulary. Takes all flags
    of ``adaptively_sparse_transformer`` but those that would change BERT's layers, and the flags of
    :mod:`.post_editor_flags`.
    """

    @classmethod
    def add_args(cls, parser):
        """Add fairseq's Transformer flags, those of α, and ours."""
        super().add_args(parser)
        add_post_editor_flags(parser)

    @classmethod
    def build_model(cls, args, task):
        """Build the model for ``task``; raises UserError for flags that contradict each other or the BERT."""
        if task.source_dictionary != task.target_dictionary:
            raise UserError(
                "source and target have different dictionaries, but encoder and decoder are one BERT; "
                "use fairseq-preprocess --joined-dictionary"
            )
        if latent_alignment(args) is not None:
            raise UserError("--latent-alignment would replace the decoder of BERT; omit it")
        bert = start_bert(args, task)
        model = super().build_model(args, task)
        encoder, decoder = model.encoder, model.decoder
        decoder.embed_positions.share(encoder.input_positions)
        set_eps(model, args.layer_norm_eps)
        encoder.drops_separator = args.drop_sep
        model.ema_warmup = args.ema_warmup  # read by guards/moving_average.py
        decoder.new_piece_penalty = float(args.new_piece_penalty)
        if bert is not None:
            bert.load_encoder(encoder, task.source_dictionary)
            if args.decoder_init == "bert":
                bert.load_layers(layers_of(decoder))
                start_from(decoder.layernorm_embedding, encoder.layernorm_embedding)
        for source, layer in zip(layers_of(encoder), layers_of(decoder)):
            if args.share_self_attention:
                _share_projections(layer.self_attn, source.self_attn)
            _start_context_attention(layer, projections=args.context_init == "self")
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
        cfg, alpha = TransformerConfig.from_namespace(args), getattr(args, "copy_gate", None)
        if alpha is None:  # as in older checkpoints
            return BertDecoder(cfg, tgt_dict, embed_tokens)
        return CopyingBertDecoder(cfg, tgt_dict, embed_tokens, alpha, separator_of(tgt_dict.indices))


def _start_context_attention(layer: nn.Module, projections: bool) -> None:
    """Copy LayerNorm, and projections if so, of a decoder layer's self-attention to its context attention."""
    start_from(layer.encoder_attn_layer_norm, layer.self_attn_layer_norm)
    for name in PROJECTIONS if projections else ():
        start_from(getattr(layer.encoder_attn, name), getattr(layer.self_attn, name))


def _share_projections(attention: nn.Module, other: nn.Module) -> None:
    """Share projections but no α: context attention, for one, needs another sparsity than self-attention."""
    for name in PROJECTIONS:
        setattr(attention, name, getattr(other, name))
