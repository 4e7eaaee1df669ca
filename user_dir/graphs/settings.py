"""The setting ``--cuda-graphs``."""

from __future__ import annotations

from omegaconf import DictConfig

from ..errors import UserError

CHOICES = ("auto", "off", "on")


def add_graph_flag(parser) -> None:
    """Add ``--cuda-graphs`` to the flags of a model."""
    parser.add_argument(
        "--cuda-graphs",
        choices=CHOICES,
        help="replay forward, criterion and backward of a training from CUDA graphs: auto, where that is "
        "possible and gives the same; off; on, or stop with the reason; on a CPU, on computes on the same "
        "padded buffers. Default: auto for models of this plugin on a GPU, off for fairseq's transformer",
    )


def graph_setting(model_settings, default: str) -> str:
    """The value of the setting, of flags or of a config's section ``model``; raises UserError."""
    get = model_settings.get if isinstance(model_settings, DictConfig) else vars(model_settings).get
    given = get("cuda_graphs", None)
    given = {None: default, True: "on", False: "off"}.get(given, given)  # YAML reads on as true
    if given not in CHOICES:
        raise UserError(f"unknown --cuda-graphs {given!r}: choose from {', '.join(CHOICES)}")
    return given
