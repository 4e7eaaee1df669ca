"""Beam search with a checkpoint of ours on a CPU, in C++ and without fairseq; the results are the same."""

from __future__ import annotations

import logging
import math

import torch
from torch import Tensor

from ..checkpoints import model_settings, num_updates
from ..corpora.dictionary import Dictionary
from ..decoding.cpu_steps import unavailable
from ..decoding.from_state import Unknown, max_positions, weights_of_state
from ..decoding.native import Engine
from ..decoding.settings import Settings
from .search import Search

logger = logging.getLogger(__name__)


class NativeSearch:
    """Searches for the translations of a batch.

    Args:
        engine: the model.
        symbols: of its vocabulary.
        positions: the most tokens of a source and of a translation.
        search: how to search.

    Attributes:
        max_positions: see ``positions``.
    """

    def __init__(self, engine: Engine, symbols: int, positions: tuple[int, int], search: Search):
        self.max_positions = positions
        self._engine, self._symbols, self._search = engine, symbols, search

    def __call__(self, sentences: list[Tensor]) -> list[list[dict]]:
        """As :meth:`.fairseq_search.FairseqSearch.__call__`."""
        lengths = torch.tensor(list(map(len, sentences)))
        limit, own = self._search.limit, Dictionary()
        longest = min(int(limit.a * int(lengths.max()) + limit.b), self.max_positions[1] - 1)
        settings = Settings(
            beam=self._search.beam,
            symbols=self._symbols,
            longest=longest,
            shortest=1,  # what follows are the defaults of fairseq-generate
            begin=own.eos(),
            end=own.eos(),
            padding=own.pad(),
            suppressed=torch.empty(0, dtype=torch.int64),
            unknown=own.unk(),
            penalty=0.0,
            normalised=True,
            length_penalty=self._search.length_penalty,
        )
        found = self._engine.search(torch.cat(sentences), lengths, settings)
        for best, *_ in found:
            best["unfinished"] = len(best["tokens"]) > longest or float(best["score"]) == -math.inf
        return found


def native_search(state: dict, search: Search, *, cpu: bool, int8: bool) -> NativeSearch | None:
    """The search with a checkpoint; None, with the reason in the log, if fairseq's way is to be taken.

    Args:
        state: the checkpoint, whose parameters are used up.
        search: how to search.
        cpu: use the CPU even if there is a GPU.
        int8: compute linear layers with 8-bit integers.
    """
    try:
        reason = _unsupported(search, cpu or int8)
        if reason is not None:
            raise Unknown(reason)
        settings = model_settings(state)
        weights = weights_of_state(state, settings, num_updates(state))
        symbols = len(weights.decoder.embeddings)
        if 2 * search.beam >= symbols:
            raise Unknown("the beam is as large as the vocabulary")
        positions = max_positions(settings)
        if min(search.limit.b, positions[1] - 1) < 1:
            raise Unknown("translations may have no piece")
    except Unknown as unknown:
        logger.debug("not without fairseq: %s", unknown)
        return None
    state["model"] = {}
    return NativeSearch(Engine(weights, int8, consume=True), symbols, positions, search)


def _unsupported(search: Search, cpu: bool) -> str | None:
    """Why fairseq's way is to be taken, whatever the model; None if there is no reason."""
    if not cpu and torch.cuda.is_available():
        return "there is a GPU"
    return unavailable(torch.float32)
