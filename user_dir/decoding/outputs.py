"""From the features of a decoder to the scores of the next symbols."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .parts import with_parts
from .products import Product
from .state import State


class Output:
    """The output layer of a decoder.

    Args:
        decoder: the model's.
        product: how linear layers are computed.
    """

    def __init__(self, decoder: nn.Module, product: type[Product]):
        self._product = product(decoder.output_projection)

    def start(self, state: State) -> None:
        """Prepare for the sentences of a batch."""

    def __call__(self, features: Tensor, state: State, rows: slice) -> Tensor:
        """Logits (R, V) of features (R, C), those of the hypotheses ``rows``: of whole sentences."""
        return self._product(features)


class PenalisedOutput(Output):
    """That of a post-editor that is to prefer the pieces of its input."""

    def __init__(self, decoder: nn.Module, product: type[Product]):
        super().__init__(decoder, product)
        self._decoder = decoder

    def __call__(self, features: Tensor, state: State, rows: slice) -> Tensor:
        """See the base class."""
        logits = super().__call__(features, state, rows)
        new = self._decoder.is_new(logits[:, None], state.memory.tokens[state.sentences[rows]])
        return logits.sub_(new[:, 0], alpha=self._decoder.new_piece_penalty)


class LatentOutput(Output):
    """A latent alignment (:class:`~user_dir.modules.LatentAlignment`) in the place of the output layer.

    It is computed as the module says, with the hypotheses of a sentence as its positions.
    """

    def __init__(self, decoder: nn.Module, product: type[Product]):
        self._vocabulary = decoder.output_projection.weight
        self._alignment = with_parts(decoder.alignment, _source=lambda source, _: source)

    def start(self, state: State) -> None:
        """See the base class."""
        rows, places = state.memory.rows, state.memory.places.long().clamp(max=len(state.memory.rows) - 1)
        alignment = self._alignment
        state.sides = alignment.k_proj(rows)[places], alignment.source_proj(rows)[places]

    def __call__(self, features: Tensor, state: State, rows: slice) -> Tensor:
        """See the base class; the logits are log-probabilities unless the alignment is soft."""
        sentences = state.sentences[rows].unique_consecutive().long()
        absent = torch.arange(state.memory.places.size(1)) >= state.memory.counts[sentences][:, None]
        keys, hidden = (side[sentences] for side in state.sides)
        given = features.view(len(sentences), -1, features.size(1)), (keys, hidden), absent, self._vocabulary
        scores, prior = self._alignment.forward(*given)
        if state.attention is not None:
            if rows.start == 0:
                state.attention.append(prior.new_empty(len(state.sentences), prior.size(2)))
            state.attention[-1][rows] = prior.flatten(0, 1)
        return scores.flatten(0, 1)


def output_of(decoder: nn.Module, product: type[Product]) -> Output:
    """The output layer of a decoder."""
    if hasattr(decoder, "alignment"):
        return LatentOutput(decoder, product)
    return (PenalisedOutput if getattr(decoder, "new_piece_penalty", 0) else Output)(decoder, product)
