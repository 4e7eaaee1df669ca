"""fairseq's multi-head attention with α-entmax instead of softmax."""

from typing import Dict, List, Optional, Tuple

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor

from ..attention import Alpha, AlphaConfig, AttentionInputs, unsupported
from ..attention.dense import attention_scores
from ..attention.length_scaling import visible_keys
from ..attention.normalizers import NORMALIZERS
from ..entmax.checks import check_mask
from ..errors import UserError, exit_on_user_error


def causal_mask(tensor: Tensor) -> Tensor:
    """The causal mask as an ``attn_mask`` of :class:`EntmaxMultiheadAttention`: an empty tensor.

    The empty tensor marks the mask as causal, so that no T × T mask is stored, read or compared.
    """
    return tensor.new_empty([0, 0])


class EntmaxMultiheadAttention(MultiheadAttention):
    """Drop-in replacement for :class:`fairseq.modules.MultiheadAttention` with the same parameters and state.

    ``normalizer`` turns scores into weights. It is softmax until the model sets another, so a checkpoint of
    the stock model loads, and at α = 1 the results equal those of the stock module. Training, validation and
    incremental decoding share one code path.

    ``backend`` is that of :func:`~user_dir.attention.attention`. ``fused`` falls back to ``auto`` in
    TorchScript and when weights are requested, which some kernels do not return. If ``discards_weights``, no
    weights are returned even if requested: fairseq's decoder always requests them, even if they are not used.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        # Set by the model; see models/sparse_heads.py.
        self.alpha = Alpha(self.num_heads, AlphaConfig(attention_normalizer="softmax"))
        self.normalizer = NORMALIZERS["softmax"]()
        self.gated_norm = None  # the normalizer's output_norm; checkpoints have the name of ReLA's
        self.length_scaling = None
        self.backend = "auto"
        self.discards_weights = False

    def forward(
        self,
        query: Tensor,
        key: Optional[Tensor],
        value: Optional[Tensor],
        key_padding_mask: Optional[Tensor] = None,
        incremental_state: Optional[Dict[str, Dict[str, Optional[Tensor]]]] = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Optional[Tensor] = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Attend from ``query`` (T, B, C) to ``key`` and ``value`` (S, B, C).

        Args:
            key_padding_mask: (B, S), true where a key is padding.
            incremental_state: caches projected keys and values between decoding steps.
            need_weights: also return the weights, averaged over heads.
            static_kv: the cached keys and values are final (the encoder's output).
            attn_mask: (T, S), floating, added to the scores; or boolean, true where a query must not attend
                to a key; or :func:`causal_mask`.
            before_softmax: return the masked scores (B·H, T, S) and the projected values (B·H, S, D).
            need_head_weights: return the weights per head.

        Returns:
            The output (T, B, C), and the weights (B, T, S), or (H, B, T, S) if per head, or None.

        Raises:
            ValueError: the ``attn_mask`` is neither boolean nor floating.
        """
        tgt_len, bsz, _ = query.size()
        causal, attn_mask = self._causal(query, attn_mask)
        k, v, key_padding_mask, attn_mask = self._keys(
            query, key, value, key_padding_mask, attn_mask, incremental_state, static_kv
        )
        q = self._queries(query, k, key_padding_mask, attn_mask, causal)
        if before_softmax:
            scores = attention_scores(q, k, key_padding_mask, attn_mask, causal)
            return self._unfold_beam(scores, bsz, tgt_len).flatten(0, 1), v.flatten(0, 1)

        need_weights = (need_weights or need_head_weights) and not self.discards_weights
        alpha = self.alpha().to(q.device) if torch.jit.is_scripting() else self.alpha.value()
        dropout = self.dropout_module.p if self._drops_weights() else 0.0
        inputs = AttentionInputs(q, k, v, alpha, key_padding_mask, attn_mask, causal, dropout, need_weights)
        as_any = need_weights or torch.jit.is_scripting()
        output, weights = self.normalizer(
            inputs, "auto" if as_any and self.backend != "dense" else self.backend
        )
        output = self._unfold_beam(output, bsz, tgt_len)
        output = output.permute(2, 0, 1, 3).reshape(tgt_len, bsz, self.embed_dim)
        if self.gated_norm is not None:
            output = self.gated_norm(output)
        if weights is not None:
            weights = self._unfold_beam(weights, bsz, tgt_len).float().transpose(0, 1)  # (H, B, T, S)
            if not need_head_weights:
                weights = weights.mean(dim=0)
        return self.out_proj(output), weights

    def train(self, mode: bool = True):
        """Set training mode. Ends the run if the backend is named but does not support training."""
        if mode and self.backend != "auto":
            x = self.out_proj.weight.new_empty(1, self.num_heads, 1, self.head_dim)
            inputs = AttentionInputs(x, x, x, self.alpha.value(), dropout=self.dropout_module.p)
            reason = unsupported(self.backend, inputs)
            if reason is not None:
                with exit_on_user_error():
                    flag = "--attention-backend"
                    raise UserError(f"{flag} {self.backend}: {reason}; use {flag} auto")
        return super().train(mode)

    def _adaptive_prune_heads(self, reserve_head_index: List[Tuple[int, int]]):
        """Keep these heads' rows of the projections, as fairseq does, and their α's."""
        self.alpha.keep_heads([first // self.head_dim for first, _ in reserve_head_index])
        super()._adaptive_prune_heads(reserve_head_index)

    def _drops_weights(self) -> bool:
        return self.training or self.dropout_module.apply_during_inference

    def _causal(self, query: Tensor, attn_mask: Optional[Tensor]) -> Tuple[bool, Optional[Tensor]]:
        """Whether the mask is :func:`causal_mask`; and the mask, None if it is."""
        if attn_mask is not None:
            check_mask(attn_mask)
            if attn_mask.numel() == 0:
                if self.bias_k is None and not self.add_zero_attn:
                    return True, None
                # keys that every query sees
                return False, query.new_full([query.size(0), query.size(0)], float("-inf")).triu(1)
        return False, attn_mask

    def _queries(
        self,
        query: Tensor,
        k: Tensor,
        key_padding_mask: Optional[Tensor],
        attn_mask: Optional[Tensor],
        causal: bool,
    ) -> Tensor:
        """Queries (B, H, T, D), scaled if so set.

        With beam folding, keys ``k`` are stored per sentence but queries per hypothesis: the hypotheses of a
        sentence are additional queries of that sentence.
        """
        tgt_len, bsz, _ = query.size()
        q = self._split_heads(self.q_proj(query))
        if self.length_scaling is not None:
            n = visible_keys(key_padding_mask, attn_mask, causal, tgt_len, k)
            q = self.length_scaling(q, query, n)
        if k.size(0) != bsz:
            q = q.view(k.size(0), -1, self.num_heads, tgt_len, self.head_dim).transpose(1, 2).flatten(2, 3)
        return q

    def _keys(
        self,
        query: Tensor,
        key: Optional[Tensor],
        value: Optional[Tensor],
        key_padding_mask: Optional[Tensor],
        attn_mask: Optional[Tensor],
        incremental_state: Optional[Dict[str, Dict[str, Optional[Tensor]]]],
        static_kv: bool,
    ) -> Tuple[Tensor, Tensor, Optional[Tensor], Optional[Tensor]]:
        """Keys and values (B, H, S, D), projected, cached, and with those that see no token; their masks."""
        if incremental_state is not None and static_kv:
            assert self.encoder_decoder_attention and not self.self_attention
            if "prev_key" in self._get_input_buffer(incremental_state):
                key = value = None
        new_k, new_v, key_padding_mask, attn_mask = self._project_keys(
            query, key, value, key_padding_mask, attn_mask
        )
        k, v, key_padding_mask = self._with_cache(
            new_k, new_v, key_padding_mask, incremental_state, static_kv
        )
        if self.add_zero_attn:
            k, v, key_padding_mask, attn_mask = self._append_zero_attn(
                k=k, v=v, key_padding_mask=key_padding_mask, attn_mask=attn_mask
            )
        return k, v, key_padding_mask, attn_mask

    def _split_heads(self, x: Tensor) -> Tensor:
        """(T, B, C) to (B, H, T, D), without a copy."""
        return x.view(x.size(0), x.size(1), self.num_heads, self.head_dim).permute(1, 2, 0, 3)

    def _unfold_beam(self, x: Tensor, bsz: int, tgt_len: int) -> Tensor:
        """Reshape (sentences, H, hypotheses·T, …) to (B, H, T, …); no change if no beam was folded."""
        if x.size(0) == bsz:
            return x
        x = x.view(x.size(0), self.num_heads, -1, tgt_len, x.size(3)).transpose(1, 2)
        return x.reshape(bsz, self.num_heads, tgt_len, x.size(4))

    def _project_keys(
        self,
        query: Tensor,
        key: Optional[Tensor],
        value: Optional[Tensor],
        key_padding_mask: Optional[Tensor],
        attn_mask: Optional[Tensor],
    ) -> Tuple[Optional[Tensor], Optional[Tensor], Optional[Tensor], Optional[Tensor]]:
        """Keys and values (B, H, S, D) and their masks; keys and values are None if they are cached."""
        if self.self_attention:
            key = value = query
        elif self.encoder_decoder_attention:
            if key is not None and self.beam_size > 1 and query.size(1) == key.size(1):
                # key is repeated for each hypothesis of a sentence
                key = key.view(key.size(0), -1, self.beam_size, key.size(2))[:, :, 0, :]
                if key_padding_mask is not None:
                    key_padding_mask = key_padding_mask.view(-1, self.beam_size, key_padding_mask.size(1))
                    key_padding_mask = key_padding_mask[:, 0, :]
            value = key
        if key is None or value is None:
            return None, None, key_padding_mask, attn_mask
        k = self.k_proj(key)
        v = self.v_proj(value)
        if self.bias_k is not None:
            k, v, key_padding_mask, attn_mask = self._add_bias(
                k, v, key_padding_mask=key_padding_mask, attn_mask=attn_mask, bsz=k.size(1)
            )
        return self._split_heads(k), self._split_heads(v), key_padding_mask, attn_mask

    def _with_cache(
        self,
        k: Optional[Tensor],
        v: Optional[Tensor],
        key_padding_mask: Optional[Tensor],
        incremental_state: Optional[Dict[str, Dict[str, Optional[Tensor]]]],
        static_kv: bool,
    ) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
        """Append to the cached keys, values and key padding mask, and update the cache."""
        if incremental_state is not None:
            saved = self._get_input_buffer(incremental_state)
            prev_key_padding_mask: Optional[Tensor] = None
            if "prev_key" in saved:
                prev_key, prev_value = saved["prev_key"], saved["prev_value"]
                assert prev_key is not None and prev_value is not None
                if static_kv:
                    k, v = prev_key, prev_value
                else:
                    assert k is not None and v is not None
                    k = torch.cat([prev_key, k], dim=2)
                    v = torch.cat([prev_value, v], dim=2)
            if "prev_key_padding_mask" in saved:
                prev_key_padding_mask = saved["prev_key_padding_mask"]
            assert k is not None and v is not None
            key_padding_mask = self._append_prev_key_padding_mask(
                key_padding_mask=key_padding_mask,
                prev_key_padding_mask=prev_key_padding_mask,
                batch_size=k.size(0),
                src_len=k.size(2),
                static_kv=static_kv,
            )
            if key_padding_mask is not None:  # fairseq appends to masks in float32
                key_padding_mask = key_padding_mask.to(torch.bool)
            saved["prev_key"] = k
            saved["prev_value"] = v
            saved["prev_key_padding_mask"] = key_padding_mask
            self._set_input_buffer(incremental_state, saved)
        assert k is not None and v is not None
        if key_padding_mask is not None and key_padding_mask.dim() == 0:
            key_padding_mask = None
        return k, v, key_padding_mask
