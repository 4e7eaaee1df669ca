"""A post-editor's decoder that copies from the machine translation unless a sparse gate opens."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..entmax import entmax
from ..errors import UserError, exit_on_user_error
from ..modules import CopyGate
from ..modules.copy_gate import Translation
from .bert_sides import BertDecoder


class CopyingBertDecoder(BertDecoder):
    """p(y_t) = g_t Σ_s c_ts [mt_s = y_t] + (1 − g_t) softmax(…), with g and c by α-entmax.

    g is the probability of copying, c that of each token of the machine translation
    (:class:`~user_dir.modules.CopyGate`). A sentence that the gate leaves alone with probability 1 is
    repeated as it is; without a machine translation, all is written. ``new_piece_penalty`` is also subtracted
    from the scores of writing and of correcting.

    The output is log p, which log_softmax does not change. The criterion ``post_editing_loss`` needs the
    features and the ``decisions`` of ``extra``.

    Source: the gate is that of See et al. 2017 (https://arxiv.org/abs/1704.04368), equations 8 and 9, with
    α-entmax (https://arxiv.org/abs/1905.05702) for sigmoid and softmax.
    """

    def __init__(self, cfg, dictionary, embed_tokens, alpha: float, separator: int):
        super().__init__(cfg, dictionary, embed_tokens)
        self.copy_gate = CopyGate(self.output_embed_dim, alpha, separator, dictionary.pad(), dictionary.eos())

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]] | None = None,
        incremental_state: dict[str, dict[str, Tensor | None]] | None = None,
        features_only: bool = False,
        **others: Any,
    ):
        """See fairseq."""
        x, extra = super().forward(prev_output_tokens, encoder_out, incremental_state, True, **others)
        assert encoder_out is not None
        tokens, encoded = encoder_out["src_tokens"][0], encoder_out["encoder_out"][0].transpose(0, 1)
        beam = x.size(0) // tokens.size(0)  # above 1 if fairseq stores the source once per sentence
        if beam > 1:
            tokens, encoded = tokens.repeat_interleave(beam, 0), encoded.repeat_interleave(beam, 0)
        decisions = self.copy_gate(x, encoded, tokens, prev_output_tokens, self._weights)
        extra |= {"decisions": decisions}
        if features_only:
            return x, extra
        logits = self.outputs(x, extra, encoder_out, incremental_state)
        return self.log_mixture(logits, decisions, prev_output_tokens.size(1)), extra

    def _weights(self, scores: Tensor) -> Tensor:
        return entmax(scores, self.copy_gate.alpha)

    def log_mixture(self, logits: Tensor, decisions, length: int) -> Tensor:
        """log p of the last T tokens of ``length`` (B, T, V), −∞ for what has no probability."""
        copying = self._weights(self._penalised(decisions.gate))[..., :1]  # (B, T, 1)
        alone = self._alone(decisions.sentence, decisions.translation)[:, None, None]
        pointed = self._weights(decisions.pointer)  # (B, T, S), 0 without a translation
        numbers = torch.arange(length - logits.size(1), length, device=logits.device)
        pointed = torch.where(alone, decisions.translation.at(numbers), pointed)
        copying = torch.where(alone, 1.0, copying) * decisions.translation.there()[:, None, None]
        p = (1 - copying) * torch.softmax(logits.float(), -1)
        tokens = decisions.translation.tokens[:, None].expand_as(pointed)
        return p.scatter_add(2, tokens, copying * pointed).log()

    def left_alone(self, encoder_out: dict[str, list[Tensor]]) -> list[int]:
        """The rows of a batch whose machine translation is repeated with probability 1."""
        tokens, encoded = encoder_out["src_tokens"][0], encoder_out["encoder_out"][0].transpose(0, 1)
        translation = self.copy_gate.translation(tokens)
        alone = self._alone(self.copy_gate.sentence_scores(translation, encoded), translation)
        return alone.nonzero().flatten().tolist()

    def translations(self, encoder_out: dict[str, list[Tensor]]) -> dict[int, Tensor]:
        """The machine translation, tokens, in each row of a batch."""
        tokens = encoder_out["src_tokens"][0]
        inside = self.copy_gate.translation(tokens).inside
        return {row: each[there] for row, (each, there) in enumerate(zip(tokens, inside))}

    def _alone(self, scores: Tensor, translation: Translation) -> Tensor:
        """Whether sentences with these scores (B, 2) are left alone with probability 1: (B,)."""
        return self._weights(self._penalised(scores))[:, 1].eq(0) & translation.there()

    def _penalised(self, scores: Tensor) -> Tensor:
        return scores - torch.tensor([0.0, self.new_piece_penalty], device=scores.device)

    def get_normalized_probs(self, net_output, log_probs: bool, sample=None) -> Tensor:
        """See fairseq; refused in training, where log p may be −∞."""
        if self.training:
            with exit_on_user_error():
                raise UserError("with --copy-gate, train with --criterion post_editing_loss")
        return super().get_normalized_probs(net_output, log_probs, sample)
