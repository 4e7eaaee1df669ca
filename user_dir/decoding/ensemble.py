"""One model or several, as a search sees them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .passes import DecoderPass, EncoderPass
from .products import Int8Product, Product


class Ensemble:
    """Models whose probabilities are averaged; all layers are prepared for many sentences.

    Args:
        models: one or more, in evaluation mode.
    """

    def __init__(self, models: Sequence[nn.Module]):
        products = [Int8Product if model.int8 else Product for model in models]
        self._sides = [
            (EncoderPass(model.encoder, product), DecoderPass(model.decoder, product))
            for model, product in zip(models, products)
        ]

    def start(self, tokens: Tensor, temperature: float = 1.0, attention: bool = False) -> Hypotheses:
        """Encode sentences (B, S), padded on either side: one empty hypothesis for each.

        Args:
            tokens: the sentences.
            temperature: logits are divided by it.
            attention: keep what hypotheses attend to.
        """
        decoders = [decoder for _, decoder in self._sides]
        states = [decoder.start(encode(tokens), attention) for encode, decoder in self._sides]
        return Hypotheses(decoders, states, temperature)


class Hypotheses:
    """Unfinished translations, those of a sentence side by side.

    Attributes:
        is_sparse: scores are probabilities, many of them 0, instead of logits.
        may_be_impossible: some symbols have the probability 0.
    """

    def __init__(self, decoders: Sequence[DecoderPass], states: list, temperature: float):
        self._decoders, self._states, self._temperature = decoders, states, temperature
        self._features: list[Tensor] = []
        self.is_sparse = len(decoders) == 1 and decoders[0].is_sparse
        self.may_be_impossible = any(decoder.is_sparse for decoder in decoders)

    def __len__(self) -> int:
        return len(self._states[0].sentences)

    def no_scores(self, *shape: int) -> Tensor:
        """Zeros of the type of scores."""
        return self._states[0].memory.rows.new_zeros(shape)

    def step(self, tokens: Tensor) -> None:
        """Read the last of the tokens (R, T) so far."""
        steps = zip(self._decoders, self._states)
        self._features = [decoder.step(state, tokens) for decoder, state in steps]

    def scores(self, rows: slice) -> Tensor:
        """(R, V), of what may follow these hypotheses, all of some sentences: logits, or see above."""
        found = []
        for decoder, state, features in zip(self._decoders, self._states, self._features):
            scores = decoder.scores(features[rows], state, rows, self._temperature)
            if len(self._decoders) == 1:
                return scores
            found.append(scores.log() if decoder.is_sparse else scores.log_softmax(-1))
        return torch.stack(found).logsumexp(0) - math.log(len(found))

    def reorder(self, order: Tensor) -> None:
        """Let hypothesis i continue hypothesis ``order[i]``, int64 (R′,)."""
        for state in self._states:
            state.reorder(order)

    def attended(self, hypothesis: int) -> Tensor:
        """What it attends to, mean over models and heads (S, positions); empty if that is unknown."""
        found = [attended for state in self._states if (attended := state.attended(hypothesis)).numel()]
        return sum(found) / len(self._states) if found else torch.empty(0)
