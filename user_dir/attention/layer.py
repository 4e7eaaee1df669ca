"""Attention with α-entmax as a layer of PyTorch, in place of ``nn.MultiheadAttention``."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..entmax.checks import as_numbers
from ..entmax.operators import is_eager
from .alpha import Alpha, AlphaConfig
from .dispatch import attention
from .normalizers import NORMALIZERS
from .normalizers.alpha_entmax import AlphaEntmax


class EntmaxAttention(nn.MultiheadAttention):
    """``nn.MultiheadAttention`` with α-entmax instead of softmax, and an α for each head.

    Constructor, arguments, results and parameters are those of ``nn.MultiheadAttention`` without
    ``add_bias_kv`` and ``add_zero_attn``, plus ``alpha``, an :class:`Alpha`. At α = 1 it computes the same,
    except that a query whose keys are all masked attends to nothing, weights are returned as they are before
    dropout, masks may differ in type, and ``is_causal`` needs no ``attn_mask`` and is ignored with one.

    Args:
        alpha: a constant α of at least 1 for every head; or an :class:`AlphaConfig`, by default one learned
            α per head. A schedule advances with ``layer.alpha.set_num_updates(update)``.

    Raises:
        ValueError: ``alpha`` is out of range, its normalizer is not α-entmax, or ``add_bias_kv`` or
            ``add_zero_attn`` is set.

    Sources: Vaswani et al. 2017 (https://arxiv.org/abs/1706.03762), section 3.2.2; Correia et al. 2019
    (https://arxiv.org/abs/1909.00015), section 3.2.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        alpha: float | AlphaConfig | None = None,
    ) -> None:
        if add_bias_kv or add_zero_attn:
            raise ValueError("EntmaxAttention takes neither add_bias_kv nor add_zero_attn")
        sizes = kdim, vdim, batch_first, device, dtype
        super().__init__(embed_dim, num_heads, dropout, bias, False, False, *sizes)
        # False keeps TransformerEncoderLayer off its fast path, which computes softmax without this layer.
        self._qkv_same_embed_dim = False
        if alpha is None or isinstance(alpha, AlphaConfig):
            config = alpha or AlphaConfig()
        else:
            config = AlphaConfig(fixed_alpha=alpha)
        if not issubclass(NORMALIZERS[config.attention_normalizer], AlphaEntmax):
            raise ValueError(f"EntmaxAttention computes α-entmax, not {config.attention_normalizer}")
        like = self.out_proj.weight
        self.alpha = Alpha(self.num_heads, config).to(device=like.device, dtype=like.dtype)

    @classmethod
    def from_multihead_attention(
        cls, layer: nn.MultiheadAttention, alpha: float | AlphaConfig | None = None
    ) -> EntmaxAttention:
        """A layer with an α and the parameter objects of ``layer``, which optimizers may already hold."""
        sizes = layer.embed_dim, layer.num_heads, layer.dropout
        biases = layer.in_proj_bias is not None, layer.bias_k is not None, layer.add_zero_attn
        other = layer.kdim, layer.vdim, layer.batch_first
        weight = layer.out_proj.weight
        made = cls(*sizes, *biases, *other, weight.device, weight.dtype, alpha=alpha)
        for name in [name for name, _ in made.named_parameters(recurse=False)]:
            setattr(made, name, getattr(layer, name))
        made.out_proj = layer.out_proj
        return made.train(layer.training)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from ``query`` to ``key`` and ``value``.

        Args:
            query: (T, B, C); (B, T, C) if ``batch_first``; or (T, C).
            key: (S, B, kdim), (B, S, kdim) or (S, kdim).
            value: (S, B, vdim), (B, S, vdim) or (S, vdim).
            key_padding_mask: (B, S) or (S,), true where a key is padding; or numbers, added to the scores.
            need_weights: also return the weights.
            attn_mask: (T, S) or (B·H, T, S), true where a query must not attend to a key; or numbers, added
                to the scores.
            average_attn_weights: return the mean of the weights over heads.
            is_causal: query t attends to keys 0 … t only (T = S).

        Returns:
            The output, of the shape of ``query``; and None, or the weights: (B, T, S), (B, H, T, S) if not
            averaged, both without B if the query has none.
        """
        if query.is_nested:
            others = key_padding_mask is not None or attn_mask is not None or need_weights
            return self._nested(query, query is key and key is value and not others, is_causal)
        batched, (q, k, v) = query.dim() == 3, self._projected(query, key, value)
        if not batched and key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
        padding, mask = self._masks(key_padding_mask, attn_mask)
        causal = is_causal and attn_mask is None
        dropout = self.dropout if self.training else 0.0
        output, weights = attention(q, k, v, self.alpha.value(), padding, mask, causal, dropout, need_weights)
        output = output.permute(*((0, 2) if self.batch_first else (2, 0)), 1, 3).flatten(2)
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        output = self.out_proj(output)
        if not batched:
            output = output.squeeze(0 if self.batch_first else 1)
            weights = None if weights is None else weights.squeeze(0)
        return output, weights

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        """Queries, keys and values in heads, (B, H, T or S, D)."""
        weights: tuple[Tensor, ...] = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        if self.in_proj_weight is not None:
            weights = self.in_proj_weight.chunk(3)
        biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        projected = []
        for x, weight, bias in zip((query, key, value), weights, biases):
            x = F.linear(x if x.dim() == 3 else x.unsqueeze(0 if self.batch_first else 1), weight, bias)
            x = x.unflatten(2, (self.num_heads, self.head_dim))
            projected.append(x.transpose(1, 2) if self.batch_first else x.permute(1, 2, 0, 3))
        return projected

    def _masks(self, padding: Tensor | None, mask: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """A boolean key padding mask and an attn_mask, each of them None if it masks nothing."""
        if mask is not None and mask.dim() == 3:
            mask = mask.unflatten(0, (-1, self.num_heads))
        if padding is None or not padding.is_floating_point():
            return padding, mask
        if padding.device.type == "cpu" and is_eager(padding):
            # TransformerEncoderLayer turns booleans into numbers, but the fused kernel takes booleans.
            hidden = padding == float("-inf")
            if not (padding.requires_grad or bool((padding[~hidden] != 0).any())):
                return hidden, mask
        added = padding[:, None, None, :]
        return None, added if mask is None else as_numbers(mask, padding.dtype) + added

    def _nested(self, query: Tensor, self_attention: bool, is_causal: bool) -> tuple[Tensor, None]:
        """Self-attention in a nested tensor: TransformerEncoder nests padded input in evaluation."""
        if not self_attention or not self.batch_first:
            raise ValueError("nested tensors need batch_first, self-attention, no masks and no weights")
        lengths = [sequence.size(0) for sequence in query.unbind()]
        x = query.to_padded_tensor(0.0)
        places = torch.arange(x.size(1), device=x.device)
        padding = torch.stack([places >= length for length in lengths])
        output, _ = self(x, x, x, padding, need_weights=False, is_causal=is_causal)
        rows = [row[:length] for row, length in zip(output, lengths)]
        return torch.nested.as_nested_tensor(rows), None
