"""Whether a training gets graphs, and for which shapes."""

from __future__ import annotations

import logging

from ..errors import UserError
from .replayable import is_ours, why_no_graphs
from .settings import graph_setting
from .shapes import shapes_of
from .training import TrainingGraphs

logger = logging.getLogger(__name__)


def training_graphs(trainer, iterator) -> TrainingGraphs | None:
    """The graphs of a training of fairseq's on the batches of an iterator; None if it is to have none.

    Raises:
        UserError: the setting is unknown, or on while graphs are impossible.
    """
    model = trainer.cfg.model
    setting = graph_setting(model, "auto" if is_ours(model) else "off")
    if setting == "off" or (setting == "auto" and not trainer.cuda):
        return None
    reason = why_no_graphs(trainer)
    shapes = shapes_of(iterator.dataset, iterator.frozen_batches) if reason is None else []
    if reason is None and not shapes:
        reason = f"there are no few shapes for batches of a {type(iterator.dataset).__name__}"
    if reason is None:
        return TrainingGraphs(trainer, iterator.dataset, shapes, strict=setting == "on")
    if setting == "on":
        raise UserError(f"--cuda-graphs on: {reason}; use auto or off")
    logger.info("training without CUDA graphs: %s", reason)
    return None
