"""fairseq's multi-head attention with α-entmax instead of softmax."""

from __future__ import annotations

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor

from ..attention import Alpha, AlphaConfig, AttentionInputs
from ..attention.normalizers import NORMALIZERS
from ..entmax.checks import check_mask
from .length_scaling import visible_keys


def causal_mask(tensor: Tensor) -> Tensor:
    """The causal mask as an ``attn_mask`` of :class:`EntmaxMultiheadAttention`: an empty tensor.

    The empty tensor marks the mask as causal, so that no T × T mask is stored, read or compared.
    """
    return tensor.new_empty([0, 0])


class EntmaxMultiheadAttention(MultiheadAttention):
    """Replacement for :class:`fairseq.modules.MultiheadAttention` with the same parameters and state.

    ``normalizer`` turns scores into weights. It is softmax until the model sets another, so a checkpoint of
    the stock model loads, and at α = 1 the results equal those of the stock module. Training, validation and
    incremental decoding share one code path. Keys that belong to no token (``add_bias_kv`` and
    ``add_zero_attn``) are not supported; none of fairseq's Transformers has them.

    ``backend`` is that of :func:`~user_dir.attention.attention`. ``fused`` falls back to ``auto`` when
    weights are requested, which some kernels do not return. If ``discards_weights``, no weights are returned
    even if requested: fairseq's decoder always requests them, even if they are not used.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        assert self.bias_k is None and not self.add_zero_attn
        # Set by the model; see heads.py.
        self.alpha = Alpha(self.num_heads, AlphaConfig(attention_normalizer="softmax"))
        self.normalizer = NORMALIZERS["softmax"]()
        self.gated_norm = None  # the normalizer's output_norm; checkpoints have the name of ReLA's
        self.length_scaling = None
        self.backend = "auto"
        self.discards_weights = False

    def forward(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        key_padding_mask: Tensor | None = None,
        incremental_state: dict[str, dict[str, Tensor | None]] | None = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Tensor | None = None,
        need_head_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from ``query`` (T, B, C) to ``key`` and ``value`` (S, B, C).

        Args:
            key_padding_mask: (B, S), true where a key is padding.
            incremental_state: caches projected keys and values between decoding steps.
            need_weights: also return the weights, averaged over heads.
            static_kv: the cached keys and values are final (the encoder's output).
            attn_mask: (T, S), floating, added to the scores; or boolean, true where a query must not attend
                to a key; or :func:`causal_mask`.
            need_head_weights: return the weights per head.

        Returns:
            The output (T, B, C), and the weights (B, T, S), or (H, B, T, S) if per head, or None.

        Raises:
            ValueError: the ``attn_mask`` is neither boolean nor floating.
        """
        tgt_len, bsz, _ = query.size()
        if attn_mask is not None:
            check_mask(attn_mask)
        causal = attn_mask is not None and attn_mask.numel() == 0
        if causal:
            attn_mask = None
        k, v, key_padding_mask = self._keys(query, key, value, key_padding_mask, incremental_state, static_kv)
        q = self._split_heads(self.q_proj(query))
        if self.length_scaling is not None:
            n = visible_keys(key_padding_mask, attn_mask, causal, tgt_len, k)
            q = self.length_scaling(q, query, n)
        if k.size(0) != bsz:  # keys are stored once per sentence: its hypotheses become additional queries
            q = q.view(k.size(0), -1, self.num_heads, tgt_len, self.head_dim).transpose(1, 2).flatten(2, 3)
        need_weights = (need_weights or need_head_weights) and not self.discards_weights
        drops = self.training or self.dropout_module.apply_during_inference
        dropout = self.dropout_module.p if drops else 0.0
        masks = key_padding_mask, attn_mask, causal
        inputs = AttentionInputs(q, k, v, self.alpha.value(), *masks, dropout, need_weights)
        backend = "auto" if need_weights and self.backend != "dense" else self.backend
        output, weights = self.normalizer(inputs, backend)
        output = self._unfold_beam(output, bsz, tgt_len)
        output = output.permute(2, 0, 1, 3).reshape(tgt_len, bsz, self.embed_dim)
        if self.gated_norm is not None:
            output = self.gated_norm(output)
        if weights is not None:
            weights = self._unfold_beam(weights, bsz, tgt_len).float().transpose(0, 1)  # (H, B, T, S)
            if not need_head_weights:
                weights = weights.mean(dim=0)
        return self.out_proj(output), weights

    def _keys(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        key_padding_mask: Tensor | None,
        incremental_state: dict[str, dict[str, Tensor | None]] | None,
        static_kv: bool,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys and values (B, H, S, D), projected and cached, and their key padding mask."""
        saved = {} if incremental_state is None else self._get_input_buffer(incremental_state)
        before = "prev_key" in saved
        if before and static_kv:
            return saved["prev_key"], saved["prev_value"], saved["prev_key_padding_mask"]
        if self.self_attention:
            key = value = query
        elif self.encoder_decoder_attention:
            if self.beam_size > 1 and query.size(1) == key.size(1):
                # key is repeated for each hypothesis of a sentence
                key = key.view(key.size(0), -1, self.beam_size, key.size(2))[:, :, 0, :]
                if key_padding_mask is not None:
                    key_padding_mask = key_padding_mask.view(-1, self.beam_size, key_padding_mask.size(1))
                    key_padding_mask = key_padding_mask[:, 0, :]
            value = key
        k, v = self._split_heads(self.k_proj(key)), self._split_heads(self.v_proj(value))
        if incremental_state is not None:
            if before:
                k, v = torch.cat([saved["prev_key"], k], dim=2), torch.cat([saved["prev_value"], v], dim=2)
            key_padding_mask = self._append_prev_key_padding_mask(
                key_padding_mask, saved.get("prev_key_padding_mask"), k.size(0), k.size(2), static_kv
            )
            if key_padding_mask is not None:  # fairseq appends to masks in float32
                key_padding_mask = key_padding_mask.to(torch.bool)
            saved["prev_key"], saved["prev_value"] = k, v
            saved["prev_key_padding_mask"] = key_padding_mask
            self._set_input_buffer(incremental_state, saved)
        return k, v, key_padding_mask

    def _split_heads(self, x: Tensor) -> Tensor:
        """(T, B, C) to (B, H, T, D), without a copy."""
        return x.view(x.size(0), x.size(1), self.num_heads, self.head_dim).permute(1, 2, 0, 3)

    def _unfold_beam(self, x: Tensor, bsz: int, tgt_len: int) -> Tensor:
        """Reshape (sentences, H, hypotheses·T, …) to (B, H, T, …); no change if no beam was folded."""
        if x.size(0) == bsz:
            return x
        x = x.view(x.size(0), self.num_heads, -1, tgt_len, x.size(3)).transpose(1, 2)
        return x.reshape(bsz, self.num_heads, tgt_len, x.size(4))
