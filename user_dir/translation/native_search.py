"""Beam search with a checkpoint of ours on a CPU, in C++ and without fairseq; the results are the same.

With that of a release archive not even torch is imported.
"""

from __future__ import annotations

import ctypes
import logging
import math
import sys
from pathlib import Path

import numpy as np

from ..checkpoints import model_settings, num_updates
from ..corpora.dictionary import Dictionary
from ..decoding.from_state import Unknown, max_positions, weights_of_state
from ..decoding.kernels import unavailable
from ..decoding.native import Engine
from ..decoding.settings import Settings
from ..decoding.weights import Weights
from ..guards.released_files import ALPHAS
from ..search_numbers import check_length_penalty, check_numbers
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

    def __call__(self, sentences: list[np.ndarray]) -> list[list[dict]]:
        """As :meth:`.fairseq_search.FairseqSearch.__call__`."""
        lengths = np.array(list(map(len, sentences)))
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
            suppressed=(),
            unknown=own.unk(),
            penalty=0.0,
            normalised=True,
            length_penalty=self._search.length_penalty,
        )
        found = self._engine.search(np.concatenate(sentences), lengths, settings)
        for best, *_ in found:
            best["unfinished"] = len(best["tokens"]) > longest or float(best["score"]) == -math.inf
        return found


def native_search(state: dict, search: Search, *, cpu: bool, int8: bool) -> NativeSearch | None:
    """The search with a checkpoint; None, with the reason in the log, if fairseq's way is to be taken.

    Args:
        state: the checkpoint, with tensors or NumPy's arrays, which are used up.
        search: how to search.
        cpu: use the CPU even if there is a GPU.
        int8: compute linear layers with 8-bit integers.

    Raises:
        UserError: over numbers that no search computes with, as the guard ``search-settings`` of fairseq's.
    """
    numbers = {"beam_size": search.beam, "len_penalty": search.length_penalty}
    check_numbers({**numbers, "max_len_a": search.limit.a, "max_len_b": search.limit.b})
    try:
        reason = _unsupported(search, cpu or int8)
        if reason is not None:
            raise Unknown(reason)
        settings = model_settings(state)
        weights = _weights(state, settings)
        symbols = len(weights.decoder.embeddings)
        if 2 * search.beam >= symbols:
            raise Unknown("the beam is as large as the vocabulary")
        positions = max_positions(settings)
        check_length_penalty(search.length_penalty, positions[1])
        if min(search.limit.b, positions[1] - 1) < 1:
            raise Unknown("translations may have no piece")
    except Unknown as unknown:
        logger.debug("not without fairseq: %s", unknown)
        return None
    state["model"] = {}
    return NativeSearch(Engine(weights, int8, consume=True), symbols, positions, search)


def _weights(state: dict, settings: dict) -> Weights:
    model = state["model"]
    if all(isinstance(each, np.ndarray) for each in model.values()):
        return weights_of_state(model, settings, state["extra_state"][ALPHAS])
    from ..decoding.alphas import alphas_of

    alphas = alphas_of(model, settings, num_updates(state))
    arrays = {name: each.float().numpy() for name, each in model.items()}
    return weights_of_state(arrays, settings, alphas)


def _unsupported(search: Search, cpu: bool) -> str | None:
    """Why fairseq's way is to be taken, whatever the model; None if there is no reason."""
    if not cpu and _may_have_gpu():
        import torch

        if torch.cuda.is_available():
            return "there is a GPU"
    return unavailable("float32")


def _may_have_gpu() -> bool:
    """False if it is certain that PyTorch finds no GPU, so that it need not be imported to ask."""
    if not sys.platform.startswith("linux") or Path("/dev/kfd").exists():  # an AMD GPU
        return True
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:  # there is no driver
        return False
    return True
