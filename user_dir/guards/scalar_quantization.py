"""``--quant-noise-scalar`` ends with a KeyError for subclasses of ``nn.Linear``, and needs a GPU.

fairseq (0.12.2 and later) looks the class of a layer up among torch's own, after finding that it inherits
from one of them, and moves the scale of the integers to a GPU wherever the weights are. And
``--quantization-config-path`` trains models whose checkpoints no command can load: they are refused before
that training. Unnecessary once fairseq looks for the class that the layer is an instance of, and leaves the
scale beside the weights.
"""

from __future__ import annotations

from fairseq import quantization_utils
from fairseq.modules.quantization.scalar import ops, utils
from torch import Tensor

from ..errors import UserError, exit_on_user_error


class _ByBase(dict):
    """The quantized counterpart of a class, or else of the class that it inherits from."""

    def __missing__(self, kind: type):
        for base in kind.__mro__[1:]:
            if base in self:
                return self[base]
        raise KeyError(kind)


def install() -> None:
    """Quantize subclasses like their base, and on a CPU; refuse to train what cannot be loaded."""
    utils.MAPPING = _ByBase(utils.MAPPING)
    emulate = ops.emulate_int8_histogram

    def emulate_int8_histogram(w: Tensor, scale=None, zero_point=None, bits=8):
        if scale is None and not w.is_cuda:
            observer = ops.quantization.observer.HistogramObserver()
            observer(w.float())
            scale, zero_point = (each.to(w) for each in observer.calculate_qparams())
        return emulate(w, scale, zero_point, bits)

    ops.emulate_int8_histogram = emulate_int8_histogram
    quantization_utils.Quantizer.__init__ = _refuse


def _refuse(self, config_path, *_, **__) -> None:
    with exit_on_user_error():
        raise UserError(
            f"--quantization-config-path {config_path} trains a model whose checkpoints no command can load; "
            "omit it (--quant-noise-scalar trains for 8-bit integers)"
        )
