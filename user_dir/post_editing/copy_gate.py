"""A pointer into the machine translation, a sparse gate between copying and writing, and its decoder."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..entmax import entmax
from ..errors import UserError
from .bert import BertDecoder

LONGEST_MATCH = 4  # tokens; the pointer follows the longest match of those written last
FARTHEST, LONGEST_GAP = 8, 4  # the largest jump, and the most tokens since a match, with scores of their own
_DRIFT = 0.15  # deducted from matched tokens, per token of distance from the same place in the translation


class Translation(NamedTuple):
    """Where the machine translation stands in source lines ``src [SEP] mt </s>`` of a batch."""

    tokens: Tensor  # (B, S) the whole lines
    inside: Tensor  # (B, S) whether a token is of the translation or its </s>
    number: Tensor  # (B, S) of each token in the translation, from 0

    @classmethod
    def of(cls, tokens: Tensor, separator: int, padding: int) -> Translation:
        """Find what follows the first separator of each line (B, S)."""
        separators = tokens.eq(separator).long()
        inside = (separators.cumsum(1) - separators).gt(0) & tokens.ne(padding)
        return cls(tokens, inside, inside.cumsum(1) - 1)

    def at(self, place: Tensor) -> Tensor:
        """Weight 1 on the token whose :attr:`number` is ``place``, or on the last: (T,) → (B, T, S)."""
        last = self.number.amax(1)[:, None]  # (B, 1)
        wanted = torch.minimum(place[None], last)[..., None]  # (B, T, 1)
        return (self.number[:, None].eq(wanted) & self.inside[:, None]).float()


class Decisions(NamedTuple):
    """Scores of what to copy, and of whether to copy."""

    pointer: Tensor  # (B, T, S), −∞ outside the translation
    gate: Tensor  # (B, T, 2): of copying, and of writing
    sentence: Tensor  # (B, 2): of leaving the sentence alone, and of correcting it
    translation: Translation


class CopyGate(nn.Module):
    """Scores for copying from the machine translation, in place of writing from the vocabulary.

    The pointer stands after the tokens of the translation that match those written last. The score of a place
    is the product of decoder state and encoder output, plus a learned score for the jump there, which depends
    on the number of tokens written since the match. The pointer never returns to what was copied, so nothing
    is repeated endlessly. The gate reads the decoder state and what the pointer would copy; a second gate,
    which reads the encoder's output at the separator, may leave the whole sentence alone.

    With α above 1, an untrained gate copies with probability 1, token by token: it repeats the translation.

    Args:
        embed_dim: C.
        alpha: α of the gates and the pointer, from 1 to 2.
        separator, padding, eos: indices of these tokens.
    """

    def __init__(self, embed_dim: int, alpha: float, separator: int, padding: int, eos: int):
        super().__init__()
        self.alpha, self.separator, self.padding, self.eos = float(alpha), separator, padding, eos
        margin = 1 / (alpha - 1) if alpha > 1 else 4.0
        self.query = nn.Linear(embed_dim, embed_dim)
        self.jumps = nn.Parameter(torch.zeros(LONGEST_GAP + 1, 2 * FARTHEST + 1))
        self.reading = nn.Linear(2 * embed_dim, embed_dim)
        self.decision = nn.Linear(embed_dim, 2)
        self.sentence = nn.Linear(embed_dim, 2)
        with torch.no_grad():
            for layer in (self.query, self.decision, self.sentence):
                layer.weight.zero_()
                layer.bias.zero_()
            self.decision.bias[0] = margin
            for gap in range(LONGEST_GAP + 1):  # assuming that tokens written replace as many
                self.jumps[gap, FARTHEST + gap] = margin

    def forward(self, state: Tensor, encoded: Tensor, tokens: Tensor, previous: Tensor) -> Decisions:
        """Decide on the last T tokens.

        Args:
            state: (B, T, C) of the decoder.
            encoded: (B, S, C) output of the encoder.
            tokens: (B, S) source lines.
            previous: (B, at least T) the decoder's whole input, which begins with </s>.
        """
        translation = Translation.of(tokens, self.separator, self.padding)
        length, fit = self.matches(translation, previous)
        match = fit.max(2)
        pointer = self._jumps(translation, *match)[:, -state.size(1) :]
        query = self.query(state) * state.size(-1) ** -0.5
        pointer = pointer + (query @ encoded.transpose(1, 2)).float()  # (B, T, S)
        ahead = self._ahead(translation, length, *match)[:, -state.size(1) :]
        pointer = pointer.masked_fill(~ahead, -torch.inf)
        read = entmax(pointer, self.alpha).type_as(encoded) @ encoded  # (B, T, C)
        hidden = nn.functional.gelu(self.reading(torch.cat([state, read], -1)))
        at_separator = tokens.eq(self.separator) & ~translation.inside  # one in each line
        sentence = self.sentence((encoded * at_separator.unsqueeze(-1).type_as(encoded)).sum(1))
        return Decisions(pointer, self.decision(hidden).float(), sentence.float(), translation)

    def _ahead(self, translation: Translation, length: Tensor, best: Tensor, place: Tensor) -> Tensor:
        """Whether a place (B, T, S) is in the translation, not before the end of a match of 2 or more tokens.

        ``best`` and ``place`` (B, T) are value and place of the best fit after each token.
        """
        sure = best.gt(0) & length.gather(2, place[..., None]).squeeze(2).ge(2)
        passed = torch.where(sure, place, 0).cummax(1).values
        places = torch.arange(translation.tokens.size(1), device=place.device)
        return translation.inside[:, None] & places.ge(passed[..., None])

    def _jumps(self, translation: Translation, best: Tensor, place: Tensor) -> Tensor:
        """The learned score of each place (B, T, S), by its distance from where the pointer stands."""
        number = torch.arange(place.size(1), device=place.device)
        matched = torch.where(best.gt(0), number, 0).cummax(1).values  # the last token with a match
        gap = (number - matched).clamp(max=LONGEST_GAP)
        places = torch.arange(translation.tokens.size(1), device=place.device)
        last = (places * translation.inside).amax(1, keepdim=True)  # the limit of ``stands + gap``
        stands = torch.minimum(place.gather(1, matched), last - gap)
        jump = (places - stands[..., None]).clamp(-FARTHEST, FARTHEST) + FARTHEST  # (B, T, S)
        return self.jumps.float()[gap[..., None], jump]

    def matches(self, translation: Translation, previous: Tensor) -> tuple[Tensor, Tensor]:
        """How many of the tokens written last, at most 4, precede each place (B, T, S); and its fit."""
        tokens, inside = translation.tokens, translation.inside
        first = inside & translation.number.eq(0)
        before = tokens.roll(1, 1).masked_fill(first, self.eos)  # </s> begins the decoder's input
        same = previous[:, :, None].eq(before[:, None]) & inside[:, None]
        length = run_lengths(same, backward=True)
        return length, _fit(length, translation)

    def targets(self, translation: Translation, previous: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        """The right decisions, according to a correction (B, T).

        Returns:
            The place to copy each token from (B, T); whether to copy it (B, T): it stands there ahead of the
            pointer, in a match of two or more tokens; and whether the sentence is right as it is (B,).
        """
        same = target[:, :, None].eq(translation.tokens[:, None]) & translation.inside[:, None]
        before, fit = self.matches(translation, previous)
        can = same & self._ahead(translation, before, *fit.max(2))
        length = (before + run_lengths(can, backward=False)) * can
        best, place = _fit(length, translation).max(2)
        copied = length.gather(2, place[..., None]).squeeze(2).ge(2) & best.gt(0)
        number = torch.arange(target.size(1), device=target.device)
        there = (same & translation.number[:, None].eq(number[:, None])).any(2)
        return place, copied, (there | target.eq(self.padding)).all(1)


def run_lengths(same: Tensor, backward: bool) -> Tensor:
    """The length, at most 4, of the diagonal run of ``same`` (B, T, S) that ends or begins at a place."""
    run, length = same, same.long()
    for _ in range(LONGEST_MATCH - 1):
        moved = torch.zeros_like(run)
        if backward:
            moved[:, 1:, 1:] = run[:, :-1, :-1]
        else:
            moved[:, :-1, :-1] = run[:, 1:, 1:]
        run = same & moved
        length = length + run
    return length


def _fit(length: Tensor, translation: Translation) -> Tensor:
    """Matched tokens, less ``_DRIFT`` per token of distance from the same place; −∞ without a match."""
    number = torch.arange(length.size(1), device=length.device)
    distance = (translation.number[:, None] - number[:, None]).abs()
    return (length - _DRIFT * distance).masked_fill(length.eq(0), -torch.inf)


class CopyingBertDecoder(BertDecoder):
    """p(y_t) = g_t Σ_s c_ts [mt_s = y_t] + (1 − g_t) softmax(…), with g and c by α-entmax.

    g is the probability of copying, c that of each token of the machine translation (:class:`CopyGate`). A
    sentence that the second gate leaves alone with probability 1 is repeated. ``new_piece_penalty`` is also
    subtracted from the scores of writing and of correcting. The output is log p; ``post_editing_loss`` needs
    the features and ``decisions`` of ``extra``.

    Source: the gate is that of See et al. 2017 (https://arxiv.org/abs/1704.04368), equations 8 and 9, with
    α-entmax (https://arxiv.org/abs/1905.05702) for sigmoid and softmax.
    """

    def __init__(self, cfg, dictionary, embed_tokens, alpha: float, separator: int):
        super().__init__(cfg, dictionary, embed_tokens)
        self.copy_gate = CopyGate(self.output_embed_dim, alpha, separator, dictionary.pad(), dictionary.eos())

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]],
        incremental_state: dict[str, dict[str, Tensor | None]] | None = None,
        features_only: bool = False,
        **others: Any,
    ):
        """See fairseq."""
        x, extra = super().forward(prev_output_tokens, encoder_out, incremental_state, True, **others)
        tokens, encoded = encoder_out["src_tokens"][0], encoder_out["encoder_out"][0].transpose(0, 1)
        beam = x.size(0) // tokens.size(0)  # above 1 if fairseq stores the source once per sentence
        tokens, encoded = tokens.repeat_interleave(beam, 0), encoded.repeat_interleave(beam, 0)
        decisions = self.copy_gate(x, encoded, tokens, prev_output_tokens)
        extra |= {"decisions": decisions}
        if features_only:
            return x, extra
        logits = self.outputs(x, extra, encoder_out, incremental_state)
        return self.log_mixture(logits, decisions, prev_output_tokens.size(1)), extra

    def log_mixture(self, logits: Tensor, decisions: Decisions, length: int) -> Tensor:
        """log p (B, T, V) of the last T of ``length`` tokens; −∞ where p is 0."""
        alpha, translation = self.copy_gate.alpha, decisions.translation
        penalty = torch.tensor([0.0, self.new_piece_penalty], device=logits.device)
        copying = entmax(decisions.gate - penalty, alpha)[..., :1]  # (B, T, 1)
        alone = entmax(decisions.sentence - penalty, alpha)[:, 1].eq(0)[:, None, None]
        numbers = torch.arange(length - logits.size(1), length, device=logits.device)
        pointed = torch.where(alone, translation.at(numbers), entmax(decisions.pointer, alpha))  # (B, T, S)
        copying = torch.where(alone, 1.0, copying)
        p = (1 - copying) * torch.softmax(logits.float(), -1)
        tokens = translation.tokens[:, None].expand_as(pointed)
        return p.scatter_add(2, tokens, copying * pointed).log()

    def get_normalized_probs(self, net_output, log_probs: bool, sample=None) -> Tensor:
        """See fairseq; refused in training, where log p may be −∞."""
        if self.training:
            raise UserError("with --copy-gate, train with --criterion post_editing_loss")
        return super().get_normalized_probs(net_output, log_probs, sample)
