"""Translation on a CPU as one call into C++ (``search.h``), from weights; without torch."""

from __future__ import annotations

import ctypes

import numpy as np

from ..cpp.build import INTEGER, POINTER, addresses
from .kernels import kernels, use_threads_of_torch
from .packed_linear import PackedLinear
from .settings import Settings
from .weights import Attention, Layer, Linear, Norm, Side, Weights


class Engine:
    """A model that translates by beam search, with the results of fairseq's.

    Args:
        weights: of the model, float32 or float64 throughout.
        int8: compute linear layers with 8-bit integers.
        consume: take the weights of each linear layer away when it is packed, so that memory never holds all
            of them twice.
    """

    def __init__(self, weights: Weights, int8: bool = False, consume: bool = False):
        self._consume, self._int8 = consume, int8
        self._kept: list[object] = []  # what the structures point to
        self._dtype = weights.output.weight.dtype
        self._symbols = len(weights.encoder.embeddings)
        sides = weights.encoder, weights.decoder
        self._model = _Model(
            *map(self._side, sides),
            self._packed(weights.projection_out),
            self._packed(weights.output),
            weights.output_alpha,
        )
        self._positions = [side.positions for side in sides]
        self._tables = [np.empty(0), np.empty(0)]  # what C++ has of them
        self._attends = weights.decoder.layers[-1].context is not None
        self._search = kernels["search", self._dtype]

    def search(
        self,
        tokens: np.ndarray,
        lengths: np.ndarray,
        settings: Settings,
        prefix: np.ndarray | None = None,
        aligns: bool = False,
    ) -> list[list[dict]]:
        """The K best translations found for each of B sentences, best first.

        Each has ``tokens`` (T,), their ``positional_scores`` (T,), ``score``, ``attention`` and ``alignment``
        as fairseq's, in NumPy's arrays and numbers.

        There are fewer if what is prescribed or forbidden leaves fewer; if none is left, there is the most
        probable unfinished one, with the score −∞.

        Args:
            tokens: int64, of all sentences, one after the other.
            lengths: int64 (B,), of the sentences.
            settings: of the search.
            prefix: with what translations begin, int64 (B, P), padded at the end; None if that is free.
            aligns: ``attention`` is what each position attends to in the last layer, mean over heads (S, T);
                else, and without context attention, it is empty.

        Raises:
            ValueError: no translation was found, because the model's scores are not finite.
        """
        sentences, beam, width = len(lengths), settings.beam, settings.longest + 1
        if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < self._symbols:
            raise ValueError(f"a source token is none of the {self._symbols} of the model")
        self._prepare_positions(int(lengths.max()), width)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        tokens = np.ascontiguousarray(tokens, np.int64)
        prefix = None if prefix is None else np.ascontiguousarray(prefix, np.int64)
        places = 0 if prefix is None else prefix.shape[1]
        batch = _Batch(*addresses(tokens, starts), sentences, *addresses(prefix), places)
        counts, sizes = (np.zeros(shape, np.int64) for shape in (sentences, (sentences, beam)))
        symbols = np.empty((sentences, beam, width), np.int64)
        scores = np.empty((sentences, beam), self._dtype)
        positional = np.empty(symbols.shape, self._dtype)
        longest, attended = int(lengths.max()), None
        if aligns and self._attends:
            attended = np.empty((sentences, beam, width, longest), self._dtype)
        results = _Results(*addresses(counts, sizes, scores, symbols, positional, attended), longest)
        given, _banned = _given(settings)
        use_threads_of_torch()
        if self._search(*map(ctypes.addressof, (self._model, given, batch, results))):
            raise MemoryError(f"no memory to translate {sentences} sentences at once")
        found = _hypotheses(counts, sizes, scores, symbols, positional)
        for number, each in enumerate(found if attended is not None else ()):
            for place, one in enumerate(each):
                weights = attended[number, place, : len(one["tokens"]), : lengths[number]]
                one["attention"] = weights.T.copy()
        return found

    def _prepare_positions(self, *needed: int) -> None:
        """Have so many positions in the encoder and in the decoder."""
        sides = self._model.encoder, self._model.decoder
        for number, (side, positions, count) in enumerate(zip(sides, self._positions, needed)):
            if positions is None or count <= len(self._tables[number]):
                continue
            if not isinstance(positions, np.ndarray):
                positions = positions(max(count, 1024))
            if len(positions) < count:
                raise ValueError(f"{count} tokens are more than the model's {len(positions)} positions")
            self._tables[number] = np.ascontiguousarray(positions, self._dtype)
            side.positions = self._tables[number].ctypes.data

    def _side(self, side: Side) -> ctypes.Structure:
        layers = (_Layer * len(side.layers))(*map(self._layer, side.layers))
        self._kept.append(layers)
        return _Side(
            embeddings=self._address(side.embeddings),
            scale=side.scale,
            projection=self._packed(side.projection_in),
            embedding_norm=self._norm(side.embedding_norm),
            norm=self._norm(side.norm),
            layers=ctypes.addressof(layers),
            count=len(side.layers),
            width=len(side.layers[0].final_norm.weight),
            embedding_width=side.embeddings.shape[1],
            pre_norm=side.pre_norm,
            gelu=side.activation == "gelu",
        )

    def _layer(self, layer: Layer) -> ctypes.Structure:
        own, context = layer.attention, layer.context
        return _Layer(
            self._heads(own, [own.query, own.key, own.value], []),
            _Heads()
            if context is None
            else self._heads(context, [context.query], [context.key, context.value]),
            *map(self._norm, (layer.attention_norm, layer.context_norm, layer.final_norm)),
            self._packed(layer.fc1),
            self._packed(layer.fc2),
        )

    def _heads(self, attention: Attention, given: list[Linear], keys: list[Linear]) -> ctypes.Structure:
        packed = [self._packed(*layers) for layers in (given, keys, [attention.out], attention.scaling or [])]
        if attention.rela is None:
            kind = self._address(attention.alpha.astype(np.float64)), None, None
        else:
            kind = None, *map(self._address, attention.rela)
        return _Heads(*packed, *kind, len(attention.alpha))

    def _norm(self, norm: Norm | None) -> ctypes.Structure:
        return _Norm() if norm is None else _Norm(*map(self._address, (norm.weight, norm.bias)), norm.eps)

    def _packed(self, *layers: Linear | None) -> int | None:
        """The address of the packed weights of layers side by side; None for none."""
        if not layers or layers[0] is None:
            return None
        weights, biases = [layer.weight for layer in layers], [layer.bias for layer in layers]
        bias = None
        if any(each is not None for each in biases):
            bias = np.concatenate(
                [np.zeros(len(w), w.dtype) if b is None else b for w, b in zip(weights, biases)]
            )
        linear = PackedLinear(np.concatenate(weights) if len(weights) > 1 else weights[0], bias, self._int8)
        self._kept.append(linear)
        for layer in layers if self._consume else ():
            layer.weight = np.empty(0, self._dtype)
        return linear.address

    def _address(self, array: np.ndarray) -> int:
        array = np.ascontiguousarray(array)
        self._kept.append(array)
        return array.ctypes.data


def _given(settings: Settings) -> tuple[ctypes.Structure, np.ndarray]:
    """The settings as C++ reads them, and what they point to."""
    banned = np.array([settings.padding, *settings.suppressed, settings.end], np.int64)
    numbers = {name: getattr(settings, name) for name, _ in _Settings._fields_ if hasattr(settings, name)}
    return _Settings(**numbers, banned=banned.ctypes.data, bans=len(banned)), banned


def _hypotheses(
    counts: np.ndarray, sizes: np.ndarray, scores: np.ndarray, symbols: np.ndarray, positional: np.ndarray
) -> list[list[dict]]:
    """See :meth:`Engine.search`. Arguments are those of ``Results`` in C++."""
    if not counts.all():
        number = int(np.argmin(counts)) + 1
        raise ValueError(f"sentence {number} of the batch has no translation: scores are NaN or infinite")
    ends = np.cumsum(sizes[sizes > 0])[:-1]
    inside = np.arange(symbols.shape[2]) < sizes[:, :, None]
    tokens, log_p = np.split(symbols[inside], ends), np.split(positional[inside], ends)
    nothing = np.empty(0, np.float32)
    found = [
        {"tokens": each, "score": score, "positional_scores": p, "attention": nothing, "alignment": nothing}
        for each, score, p in zip(tokens, scores[sizes > 0], log_p)
    ]
    ends = np.cumsum(counts).tolist()
    return [found[end - count : end] for count, end in zip(counts.tolist(), ends)]


# ------------------------------------------------------- the structures of model.h, hypotheses.h and search.h

_REAL = ctypes.c_double


def _structure(name: str, **fields: type) -> type[ctypes.Structure]:
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


_Norm = _structure("Norm", weight=POINTER, bias=POINTER, eps=_REAL)
_Heads = _structure(
    "Heads",
    given=POINTER,
    keys=POINTER,
    out=POINTER,
    scaling=POINTER,
    alpha=POINTER,
    norm_scale=POINTER,
    norm_gate=POINTER,
    count=INTEGER,
)
_Layer = _structure(
    "Layer",
    own=_Heads,
    context=_Heads,
    own_norm=_Norm,
    context_norm=_Norm,
    final_norm=_Norm,
    fc1=POINTER,
    fc2=POINTER,
)
_Side = _structure(
    "Side",
    embeddings=POINTER,
    scale=_REAL,
    projection=POINTER,
    positions=POINTER,
    embedding_norm=_Norm,
    norm=_Norm,
    layers=POINTER,
    count=INTEGER,
    width=INTEGER,
    embedding_width=INTEGER,
    pre_norm=INTEGER,
    gelu=INTEGER,
)
_Model = _structure(
    "Model", encoder=_Side, decoder=_Side, projection=POINTER, output=POINTER, output_alpha=_REAL
)
_Settings = _structure(
    "Settings",
    **dict.fromkeys(("beam", "longest", "shortest", "begin", "end", "padding", "unknown"), INTEGER),
    penalty=_REAL,
    normalised=INTEGER,
    length_penalty=_REAL,
    ngram=INTEGER,
    temperature=_REAL,
    banned=POINTER,
    bans=INTEGER,
)
_Batch = _structure(
    "Batch", symbols=POINTER, starts=POINTER, sentences=INTEGER, prefix=POINTER, places=INTEGER
)
_Results = _structure(
    "Results",
    **dict.fromkeys(("counts", "lengths", "scores", "symbols", "positional", "attended"), POINTER),
    source=INTEGER,
)
