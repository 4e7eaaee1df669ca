"""fairseq's generator, with a faster search where it gives the same translations."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable

import torch
from fairseq.modules import FairseqDropout, LearnedPositionalEmbedding, SinusoidalPositionalEmbedding
from fairseq.modules.layer_drop import LayerDropModuleList
from fairseq.search import BeamSearch
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules
from torch.utils.checkpoint import checkpoint

from ..attention import Alpha
from ..attention.normalizers.rela import GatedRMSNorm
from ..entmax import has_native
from ..errors import UserError, one_line
from ..graphs.shapes import INPUTS
from ..models.layers import (
    AdaptivelySparseDecoder,
    AdaptivelySparseDecoderLayer,
    AdaptivelySparseEncoder,
    AdaptivelySparseEncoderLayer,
    EntmaxMultiheadAttention,
    Linear,
    OutputNormalizer,
)
from ..models.length_scaling import LengthScaling
from ..models.settings import exact_type
from ..models.transformer import AdaptivelySparseTransformerModel
from .device_search import DeviceSearch, NotRecorded
from .native import DTYPES, Settings, available, search
from .weights import ACTIVATIONS, Weights

logger = logging.getLogger(__name__)

MODULES = {
    AdaptivelySparseTransformerModel,
    AdaptivelySparseEncoder,
    AdaptivelySparseDecoder,
    AdaptivelySparseEncoderLayer,
    AdaptivelySparseDecoderLayer,
    EntmaxMultiheadAttention,
    Alpha,
    LengthScaling,
    GatedRMSNorm,
    OutputNormalizer,
    LearnedPositionalEmbedding,
    SinusoidalPositionalEmbedding,
    FairseqDropout,
    Linear,
    LayerDropModuleList,
    nn.Embedding,
    nn.Linear,
    nn.LayerNorm,
    nn.ModuleList,
}
"""Module classes that our searches support, besides normalizers whose ``searchable`` is true."""


def can_search(model: nn.Module, on_device: bool = False) -> bool:
    """Whether our searches know all parts of a model, and so compute what fairseq's search computes.

    Args:
        model: one of fairseq's.
        on_device: ask about the search for GPUs, as is always done for a model on a GPU.
    """
    if exact_type(model) is not AdaptivelySparseTransformerModel or model.decoder.prepends_source:
        return False
    if torch_modules._global_forward_hooks or torch_modules._global_forward_pre_hooks:
        return False
    if not all(map(_is_known, model.modules())):
        return False
    if not all(
        layer.activation_fn in ACTIVATIONS for side in (model.encoder, model.decoder) for layer in side.layers
    ):
        return False
    if len({(parameter.device, parameter.dtype) for parameter in model.parameters()}) > 1:
        return False
    weight = model.decoder.output_projection.weight
    if weight.is_cuda or on_device:
        return not model.int8 and (not weight.is_cuda or has_native("cuda"))
    return weight.device.type == "cpu" and weight.dtype in DTYPES and available()


def _is_known(module: nn.Module) -> bool:
    """Whether the searches know what a module computes, not counting its parts."""
    kind = exact_type(module)
    if kind not in MODULES and not vars(kind).get("searchable", False):  # not inherited
        return False
    if module.training or module._forward_hooks or module._forward_pre_hooks:
        return False
    if getattr(module, "apply_during_inference", False):  # --retain-dropout
        return False
    forward = vars(module).get("forward")  # set on the instance, as activation checkpointing does
    return forward is None or getattr(forward, "func", None) is checkpoint


class FastGenerator(SequenceGenerator):
    """fairseq's ``SequenceGenerator`` with a beam search that is two to four times as fast on a CPU.

    The translations are the same: scores agree up to rounding, which decides between hypotheses of equal
    score. Models and options for which :meth:`can_search` is false keep fairseq's own search.

    With ``model.int8``, linear layers use 8-bit integers, or UserError is raised where that is impossible.

    Attributes:
        on_device: use the search for GPUs (:mod:`.device_search`), as is always done for a model on a GPU.
    """

    aligns = on_device = _has_failed = False
    _kept = None  # (what it depends on, DeviceSearch or Weights)

    def can_search(self, sample: dict, prefix_tokens: Tensor | None = None) -> bool:
        """Whether our search translates a batch; otherwise fairseq's does."""
        models, inputs = self.model.models, sample["net_input"]
        rules = self.aligns or prefix_tokens is not None or self.repeat_ngram_blocker is not None
        return (
            len(models) == 1
            and type(self.search) is BeamSearch
            and not self.match_source_len
            and self.lm_model is None
            and 2 * self.beam_size < self.vocab_size
            and {"src_tokens"} <= inputs.keys() <= INPUTS
            and not (rules and self._is_on_device(sample))
            and can_search(models[0], self.on_device)
        )

    def _is_on_device(self, sample: dict) -> bool:
        return self.on_device or sample["net_input"]["src_tokens"].is_cuda

    def _generate(
        self,
        sample: dict,
        prefix_tokens: Tensor | None = None,
        constraints: Tensor | None = None,
        bos_token: int | None = None,
    ) -> list[list[dict[str, Tensor]]]:
        if constraints is not None or not self.can_search(sample, prefix_tokens):
            require_no_int8(self.model.models)
            return super()._generate(sample, prefix_tokens, constraints, bos_token)
        source = sample["net_input"]["src_tokens"]
        longest = min(int(self.max_len_a * source.size(1) + self.max_len_b), self.max_len - 1)
        assert self.min_len <= longest, "min_len cannot be larger than max_len, please adjust these!"
        begin = self.eos if bos_token is None else bos_token
        if self._is_on_device(sample):
            try:
                return self._device_search()(sample["net_input"], longest, begin)
            except (torch.cuda.OutOfMemoryError, NotRecorded) as error:
                self._kept, reason = None, one_line(error)[:300]
            if not self._has_failed:
                self._has_failed = True
                logger.warning("fairseq's search translates a batch, because the fast one failed: %s", reason)
            return super()._generate(sample, bos_token=bos_token)
        settings = Settings(
            beam=self.beam_size,
            longest=longest,
            shortest=self.min_len,
            begin=begin,
            end=self.eos,
            padding=self.pad,
            unknown=self.unk,
            unknown_penalty=self.unk_penalty,
            normalised=self.normalize_scores,
            length_penalty=self.len_penalty,
            ngram=getattr(self.repeat_ngram_blocker, "no_repeat_ngram_size", 0),
            temperature=self.temperature,
        )
        suppressed = self.token_indices_to_suppress
        suppressed = [] if suppressed is None else suppressed.tolist()
        return search(self._weights(), source, settings, suppressed, prefix_tokens, self.aligns)

    def _device_search(self) -> DeviceSearch:
        """The search on a GPU, reused until one of its options or the address of a parameter changes."""
        (model,) = self.model.models
        places = [tensor.data_ptr() for tensor in itertools.chain(model.parameters(), model.buffers())]
        state = places, model.decoder.output_normalizer.alpha(), self.beam_size, self.temperature, self.eos
        if self._kept is None or self._kept[0] != state:
            self._kept = state, DeviceSearch(self)
        return self._kept[1]

    def _weights(self) -> Weights:
        """The weights for the C++ search, reused while unchanged if the model is prepared for inference."""
        (model,) = self.model.models
        versions = [(parameter.data_ptr(), parameter._version) for parameter in model.parameters()]
        state, kept = (versions, model.int8, model.decoder.output_normalizer.alpha()), self._kept
        if kept is None or kept[0] != state:
            kept = state, Weights(model, model.int8)
        if getattr(model, "_is_generation_fast", False):  # set by fairseq's make_generation_fast_
            self._kept = kept
        return kept[1]


class AligningGenerator(SequenceGeneratorWithAlignment, FastGenerator):
    """fairseq's ``SequenceGeneratorWithAlignment`` with the search of :class:`FastGenerator`."""

    aligns = True


def build_generator(
    build: Callable, task, models, args, seq_gen_cls=None, extra_gen_cls_kwargs=None, *others, **kwargs
):
    """The generator of a task of fairseq's: ours if no other is asked for. ``build`` is the task's method."""
    if seq_gen_cls is not None or getattr(args, "score_reference", False):
        require_no_int8(models)
    elif alignment := getattr(args, "print_alignment", None):
        seq_gen_cls = AligningGenerator
        extra_gen_cls_kwargs = {**(extra_gen_cls_kwargs or {}), "print_alignment": alignment}
    else:
        seq_gen_cls = FastGenerator
    return build(task, models, args, seq_gen_cls, extra_gen_cls_kwargs, *others, **kwargs)


def require_no_int8(models: Iterable[nn.Module]) -> None:
    """Raise UserError if a model has ``int8``; called where the search in C++ cannot translate."""
    if any(getattr(model, "int8", False) for model in models):
        raise UserError("--int8 is not possible here: only the search in C++ computes with 8-bit integers")
