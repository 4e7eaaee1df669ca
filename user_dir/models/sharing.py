"""Sharing of parameters between the attentions and feed-forward networks of encoder and decoder layers.

Projections are shared, LayerNorms and α never: context attention, for one, needs another sparsity than
self-attention (variants of Correia and Martins 2019).
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")


def copy_self_attention(layer: nn.Module, projections: bool) -> None:
    """Initialise a decoder layer's context attention from its self-attention.

    Its LayerNorm always, its projections only if ``projections``.
    """
    layer.encoder_attn_layer_norm.load_state_dict(layer.self_attn_layer_norm.state_dict())
    if projections:
        for name in PROJECTIONS:
            getattr(layer.encoder_attn, name).load_state_dict(getattr(layer.self_attn, name).state_dict())


def share_layers(
    encoder: Iterable[nn.Module],
    decoder: Iterable[nn.Module],
    *,
    self_attention: bool,
    context_attention: bool,
    feed_forward: bool,
) -> None:
    """Let each decoder layer use modules of the encoder layer at the same position, or of its own.

    Args:
        encoder: encoder layers.
        decoder: as many decoder layers.
        self_attention: the decoder's self-attention uses the projections of the encoder's.
        context_attention: the context attention uses those of the decoder's self-attention.
        feed_forward: the decoder's feed-forward network is the encoder's.
    """
    for source, layer in zip(encoder, decoder):
        if self_attention:
            _share_projections(layer.self_attn, source.self_attn)
        if context_attention:
            _share_projections(layer.encoder_attn, layer.self_attn)
        if feed_forward:
            layer.fc1, layer.fc2 = source.fc1, source.fc2


def _share_projections(attention: nn.Module, other: nn.Module) -> None:
    for name in PROJECTIONS:
        setattr(attention, name, getattr(other, name))
