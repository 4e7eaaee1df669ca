"""fairseq's generator, with a faster search where it gives the same translations."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable

import torch
from fairseq.search import BeamSearch
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..errors import UserError
from ..guards.translation import longest
from .device_search import DeviceSearch, unsupported_on_device
from .ensemble import Ensemble
from .from_model import not_native, weights_of
from .native import Engine
from .search_loop import beam_search
from .settings import Settings
from .supported import unsupported_model

logger = logging.getLogger(__name__)

INPUTS = {"src_tokens", "src_lengths", "prev_output_tokens"}  # of a batch of text


class FastGenerator(SequenceGenerator):
    """fairseq's ``SequenceGenerator`` with a beam search that is two to four times as fast on a CPU.

    The translations are the same: scores agree up to rounding, which decides between hypotheses of equal
    score. Models and options that :func:`unsupported` gives a reason for keep fairseq's own search.

    A model whose ``int8`` is true computes its linear layers with 8-bit integers, or not at all.

    Attributes:
        on_device: search as on a GPU (:mod:`.device_search`), which models on a GPU always do.
    """

    aligns = on_device = _lacked_memory = False

    def _generate(
        self,
        sample: dict,
        prefix_tokens: Tensor | None = None,
        constraints: Tensor | None = None,
        bos_token: int | None = None,
    ) -> list[list[dict]]:
        reason = unsupported(self, sample, constraints)
        if reason is not None:
            require_no_int8(self.model.models, reason)
            return super()._generate(sample, prefix_tokens, constraints, bos_token)
        source = sample["net_input"]["src_tokens"]
        limit, suppressed = longest(self, source), self.token_indices_to_suppress
        assert self.min_len <= limit, "min_len cannot be larger than max_len, please adjust these!"
        begin = self.eos if bos_token is None else bos_token
        if _is_on_device(self):
            found = self._found_on_device(sample["net_input"], limit, begin, prefix_tokens)
            if found is not None:
                return found
            return super()._generate(sample, prefix_tokens, bos_token=bos_token)
        settings = Settings(
            beam=self.beam_size,
            symbols=self.vocab_size,
            longest=limit,
            shortest=self.min_len,
            begin=begin,
            end=self.eos,
            padding=self.pad,
            suppressed=() if suppressed is None else suppressed.tolist(),
            unknown=self.unk,
            penalty=self.unk_penalty,
            normalised=self.normalize_scores,
            length_penalty=self.len_penalty,
            ngram=getattr(self.repeat_ngram_blocker, "no_repeat_ngram_size", 0),
            temperature=self.temperature,
        )
        prepared = self._prepared_models()
        if isinstance(prepared, Engine):
            there = source.ne(self.pad)
            prefix = None if prefix_tokens is None else prefix_tokens.numpy()
            given = source[there].numpy(), there.sum(1).numpy(), settings, prefix
            found = [list(map(_as_tensors, each)) for each in prepared.search(*given, self.aligns)]
            return _with_padding(found, there) if self.aligns else found
        return beam_search(prepared.start(source, self.temperature, self.aligns), settings, prefix_tokens)

    def _found_on_device(self, *given) -> list[list[dict]] | None:
        """What the search on a GPU finds; None if it has too little memory for the batch."""
        try:
            return self._device_search()(*given)
        except torch.cuda.OutOfMemoryError:
            del self._kept_search
        if not self._lacked_memory:
            self._lacked_memory = True
            logger.warning(
                "warning: the GPU has too little memory to search a batch in the fast way; fairseq's search "
                "translates it (this is said once)"
            )
        return None

    def _device_search(self) -> DeviceSearch:
        """The search on a GPU, kept while these options are the same and parameters are where they were."""
        tensors = itertools.chain(self.model.parameters(), self.model.buffers())
        constants = list(map(_constants, self.model.models))
        state = [each.data_ptr() for each in tensors], constants, self.beam_size, self.temperature, self.eos
        kept = getattr(self, "_kept_search", None)
        if kept is None or kept[0] != state:
            self._kept_search = kept = state, DeviceSearch(self)
        return kept[1]

    def _prepared_models(self) -> Engine | Ensemble:
        """The models, prepared once if they are no longer trained; in C++ if it knows all of them."""
        models = list(self.model.models)
        state = [
            (m.int8, _constants(m), [(p.data_ptr(), p._version) for p in m.parameters()]) for m in models
        ]
        kept = getattr(self, "_prepared", None)
        if kept is not None and kept[0] == state:
            return kept[1]
        if len(models) == 1 and not_native(models[0]) is None:
            prepared = Engine(weights_of(models[0]), models[0].int8)
        else:
            prepared = Ensemble(models)
        if _are_fixed(models):
            self._prepared = state, prepared
        return prepared


class AligningGenerator(SequenceGeneratorWithAlignment, FastGenerator):
    """The same for fairseq's ``SequenceGeneratorWithAlignment``."""

    aligns = True


def _as_tensors(hypothesis: dict) -> dict:
    """A hypothesis of the search in C++ in fairseq's form."""
    return {name: torch.as_tensor(value) for name, value in hypothesis.items()}


def _with_padding(found: list[list[dict]], there: Tensor) -> list[list[dict]]:
    """Hypotheses whose attention is 0 at padding as well; there (B, S)."""
    for each, of in zip(found, there):
        for hypothesis in each:
            weights = hypothesis["attention"]
            if weights.numel():
                hypothesis["attention"] = weights.new_zeros(len(of), weights.size(1)).masked_scatter_(
                    of[:, None], weights
                )
    return found


def require_no_int8(models: Iterable[nn.Module], reason: str) -> None:
    """Raise UserError, with the reason that it cannot be, if a model is to translate with 8-bit integers."""
    if any(getattr(model, "int8", False) for model in models):
        raise UserError(f"--int8 is not possible here: {reason}")


def unsupported(generator: SequenceGenerator, sample: dict, constraints: Tensor | None = None) -> str | None:
    """Why fairseq's own search is to translate a batch; None if ours can."""
    if constraints is not None:
        return "parts of translations are prescribed"
    if type(generator.search) is not BeamSearch or generator.match_source_len:
        return "the search is not plain beam search"
    if generator.lm_model is not None:
        return "a language model helps"
    if 2 * generator.beam_size >= generator.vocab_size:
        return "the beam is as large as the vocabulary"
    if not {"src_tokens"} <= sample["net_input"].keys() <= INPUTS:
        return "the source is not text alone"
    on_device = _is_on_device(generator)
    reason = _unsupported_models(generator, on_device)
    if reason is None and on_device:
        return unsupported_on_device(generator)
    return reason


def _unsupported_models(generator: SequenceGenerator, on_device: bool) -> str | None:
    """Why fairseq's own search is to use the models; None if ours can.

    They are looked at once if they can no longer be trained, and again after hooks were added.
    """
    models = list(generator.model.models)
    each = [(id(m), getattr(m, "int8", None), next(m.parameters()).data_ptr()) for m in models]
    state = each, RemovableHandle.next_id, on_device
    kept = getattr(generator, "_looked_at", None)
    if kept is not None and kept[0] == state:
        return kept[1]
    reason = next(filter(None, (unsupported_model(model, on_device) for model in models)), None)
    if reason is None and len({next(model.parameters()).dtype for model in models}) > 1:
        reason = "parameters are of different types"
    if _are_fixed(models):
        generator._looked_at = state, reason
    return reason


def _constants(model: nn.Module) -> tuple[float, float]:
    """What a model computes with beside its parameters, which may be changed between batches."""
    return model.decoder.output_normalizer.alpha(), getattr(model.decoder, "new_piece_penalty", 0.0)


def _are_fixed(models: list[nn.Module]) -> bool:
    """Whether models have fairseq's mark of those that cannot be trained any more."""
    return all(getattr(model, "_is_generation_fast", False) for model in models)


def _is_on_device(generator: SequenceGenerator) -> bool:
    """Whether a batch is searched for as on a GPU."""
    return getattr(generator, "on_device", False) or next(generator.model.parameters()).is_cuda
