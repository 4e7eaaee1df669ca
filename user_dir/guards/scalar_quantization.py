"""``--quant-noise-scalar`` ends with a KeyError for subclasses of ``nn.Linear``, and needs a GPU.

fairseq (0.12.2 and later) looks the class of a layer up among torch's own, after finding that it inherits
from one of them, and moves the scale of the integers to a GPU wherever the weights are. And
``--quantization-config-path`` trains models whose checkpoints no command can load: they are refused before
that training. Unnecessary once fairseq looks for the class that the layer is an instance of, and leaves the
scale beside the weights.
"""

from fairseq import quantization_utils
from fairseq.modules.quantization.scalar import ops, utils
from torch import Tensor

from ..errors import UserError, exit_on_user_error
from .installing import around


class _ByBase(dict):
    """The quantized counterpart of a class, or else of the class that it inherits from."""

    def __missing__(self, kind: type):
        for base in kind.__mro__[1:]:
            if base in self:
                return self[base]
        raise KeyError(kind)


def install() -> None:
    """Quantize subclasses like their base."""
    utils.MAPPING = _ByBase(utils.MAPPING)


@around(ops, "emulate_int8_histogram")
def emulate_int8_histogram(emulate, w: Tensor, scale=None, zero_point=None, bits=8):
    """Leave the scale beside weights that are on a CPU."""
    if scale is None and not w.is_cuda:
        observer = ops.quantization.observer.HistogramObserver()
        observer(w.float())
        scale, zero_point = (each.to(w) for each in observer.calculate_qparams())
    return emulate(w, scale, zero_point, bits)


@around(quantization_utils.Quantizer, "__init__")
def refuse(_, self, config_path, *args, **kwargs) -> None:
    """Refuse to train what cannot be loaded."""
    with exit_on_user_error():
        raise UserError(
            f"--quantization-config-path {config_path} trains a model whose checkpoints no command can load; "
            "omit it (--quant-noise-scalar trains for 8-bit integers)"
        )
