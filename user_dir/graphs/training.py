"""The updates of a training, replayed where they can be."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from fairseq import utils
from fairseq.logging import metrics
from fairseq.models.transformer import TransformerModel
from torch import Tensor

from ..errors import UserError, one_line
from .comparison import disagreement, is_finite
from .gradients import Gradients
from .recorder import Recorder, lacked_memory
from .replayable import why_not_now
from .shapes import Shape, fitting
from .static_batch import StaticBatch, shape_of, unknown_entry
from .stock import ask_nothing

logger = logging.getLogger(__name__)

OutOfMemory = torch.cuda.OutOfMemoryError


class Step:
    """Forward, criterion and backward of one shape: its batch, what computes it, and its replay."""

    def __init__(self, batch: StaticBatch, compute: Callable[[], tuple[Tensor, dict[str, Any]]]):
        self.batch, self.compute = batch, compute
        self.replay: Callable[[], tuple[Tensor, dict[str, Any]]] | None = None  # once it was computed


class TrainingGraphs:
    """Stands in for the training step of fairseq's task, batch by batch.

    Args:
        trainer: fairseq's.
        dataset: what is trained on.
        shapes: the shapes that may get a graph.
        strict: end the training where a graph cannot be recorded or is wrong, instead of going on without.
    """

    def __init__(self, trainer, dataset, shapes: list[Shape], strict: bool):
        self.model, self.criterion = trainer.get_model(), trainer.get_criterion()
        self.device, self.shapes, self.strict = trainer.device, shapes, strict
        words = trainer.task.target_dictionary or trainer.task.source_dictionary
        sides = {"source": ("src_tokens",), "target": ("prev_output_tokens", "target")}
        left = [names for side, names in sides.items() if getattr(dataset, f"left_pad_{side}", False)]
        self.layout = words.pad(), words.eos(), frozenset(chain(*left))
        parameters = chain(self.model.parameters(), self.criterion.parameters())
        self.parameters = [each for each in parameters if each.requires_grad]
        self.gradients = Gradients()
        self.scale = torch.ones((), device=self.device)  # of the loss; the optimizer's may change
        self.steps: dict[Shape, Step] = {}
        self.recorder = Recorder(self.device)
        self.places: list[int] = []
        self.stopped = self.compared = False
        self.left = 0  # batches of the present update
        self.said: set[str] = set()
        if type(self.model) is TransformerModel:
            ask_nothing(self.model)
        how = "CUDA graphs" if trainer.cuda else "the buffers of CUDA graphs, without a GPU,"
        logger.info("training with %s for batches of %d shapes, the largest %s", how, len(shapes), shapes[-1])

    # ------------------------------------------------------------------------------------- an update

    def begin_update(self, batches: int) -> None:
        """Called before the first of so many batches."""
        self.left, self.batches, self.replayed = batches, batches, 0
        self.losses: list[tuple[Shape, dict, Callable[[], float]]] = []
        places = [each.data_ptr() for each in chain(self.model.parameters(), self.model.buffers())]
        if places != self.places:  # a graph would read the previous ones
            self._forget()
            self.places = places
        self.now = None if self.stopped else why_not_now(self.model)
        if self.now is not None:
            self._say(f"updates are not replayed: {self.now}")

    def end_update(self) -> None:
        """Log what was replayed.

        Raises:
            UserError: a loss on the buffers is not finite, while the same batch has a finite one without.
        """
        metrics.log_scalar("replayed", self.replayed / max(self.batches, 1), 1, priority=850, round=2)
        metrics.log_scalar("graphs", self.recorded, 0, priority=851)
        self.check_losses()

    @property
    def recorded(self) -> int:
        """How many graphs there are."""
        return sum(step.replay is not None for step in self.steps.values())

    def check_losses(self) -> None:
        """See :meth:`end_update`; fairseq has waited for the device when this is called."""
        for shape, sample, read in self.losses:
            if math.isfinite(read()):
                continue
            with torch.no_grad():
                loss = self.criterion(self.model, sample)[0].item()
            if math.isfinite(loss):
                raise UserError(
                    f"the graph of the shape {shape} gives the loss {read()}, but without a graph it is "
                    f"{loss:.6g}; train with --cuda-graphs off"
                )

    def step(self, plain: Callable[[], tuple], sample: dict, optimizer, update: int) -> tuple:
        """What the task's training step returns, and the gradients it adds up; ``plain()`` is the task's."""
        if self.stopped:
            return plain()
        self.left -= 1
        shape = self._shape(sample) if self.left >= 0 else None  # fairseq repeats an update that failed
        compute = plain if shape is None else lambda: self._on_buffers(shape, sample, optimizer, update)
        alone = self.gradients.restore()
        try:
            return self._adopted(compute())
        except OutOfMemory:
            if not alone or not self.steps:
                raise  # fairseq leaves out the batch
            self._make_room(shape)
        # Not above, where the exception keeps what was computed.
        self.gradients.clear(self.parameters)
        return self._adopted(plain())

    def _adopted(self, result: tuple) -> tuple:
        """The result of a batch, when its gradients have their places; graphs without these are dropped."""
        if self.gradients.adopt(self.parameters):
            self._forget()
        return result

    def _shape(self, sample: dict) -> Shape | None:
        """The shape that a batch is padded to, if any."""
        if self.now is not None:
            return None
        unknown = unknown_entry(sample)
        if unknown is not None:
            return self._say(f"updates are not replayed: {unknown}")
        return fitting(self.shapes, shape_of(sample))

    # -------------------------------------------------------------------------------------- a batch

    def _on_buffers(self, shape: Shape, sample: dict, optimizer, update: int) -> tuple:
        if shape not in self.steps:
            batch = StaticBatch(sample, shape, *self.layout)
            self.steps[shape] = Step(batch, lambda: self._compute(batch))
        step = self.steps[shape]
        step.batch.fill(sample)
        scaler = getattr(optimizer, "scaler", None)
        self.scale.fill_(1.0 if scaler is None else scaler.loss_scale)
        self.model.set_num_updates(update)
        if step.replay is None:
            loss, logged = self.recorder.run(step.compute)
            self._record(shape, step)
        else:
            loss, logged = step.replay() if self.compared else self._first_replay(step)
            self.replayed += 1
        if hasattr(optimizer, "_needs_sync"):
            optimizer._needs_sync = True  # fairseq's own backward sets it
        self.losses.append((shape, sample, self.recorder.read_later(loss)))
        return self._returned(loss, logged, sample)

    def _compute(self, batch: StaticBatch) -> tuple[Tensor, dict[str, Any]]:
        loss, _, logged = self.criterion(self.model, batch.sample)
        (loss * self.scale).backward()
        return loss.detach(), logged

    def _returned(self, loss: Tensor, logged: dict[str, Any], sample: dict) -> tuple:
        """Copies, which the next replay does not overwrite, with the numbers of the batch before padding."""
        logged = {name: each.clone() if isinstance(each, Tensor) else each for name, each in logged.items()}
        words, sentences = sample["ntokens"], sample["target"].size(0)
        size = sentences if self.criterion.sentence_avg else words
        return loss.clone(), size, {**logged, "ntokens": words, "nsentences": sentences, "sample_size": size}

    def _record(self, shape: Shape, step: Step) -> None:
        """Record a step that was computed, and adopt its gradients before."""
        if self.gradients.adopt(self.parameters):
            self._forget()
            self.steps[shape] = step
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # while a graph is being recorded, torch cannot free what it keeps
        try:
            step.replay = self.recorder.record(step.compute)
        except RuntimeError as error:
            self._forget()  # the others draw from a generator that is not torch's any more
            if lacked_memory(error):
                self._make_room(shape)
            else:
                self._stop(f"recording failed: {one_line(error)[:300]}")

    def _first_replay(self, step: Step) -> tuple[Tensor, dict[str, Any]]:
        """A replay beside the same batch without a graph, with the same random numbers."""
        before, random = self.gradients.copies(), utils.get_rng_state()
        loss, logged = self.recorder.run(step.compute)
        expected = self.gradients.copies()
        if not is_finite(loss, expected):  # as happens in half precision
            return loss, logged
        self.gradients.set(before)
        utils.set_rng_state(random)
        replayed = step.replay()
        fault = disagreement(replayed[0], self.gradients.current(), (loss, expected))
        if fault is None:
            self.compared = True
            return replayed
        self.gradients.set(expected)
        self._stop(f"the first replay differs from the same batch without a graph: {fault}")
        return loss, logged

    # ------------------------------------------------------------------------------------- failures

    def _make_room(self, shape: Shape | None) -> None:
        """Leave out a shape that does not fit into memory, or all of them if it is a batch without shape."""
        if shape is None:
            self.release("in a batch without one")
        else:
            self._say(f"no CUDA graph for batches of the shape {shape}: out of memory")
            self.shapes = [each for each in self.shapes if each != shape]
            self.steps.pop(shape, None)

    def release(self, where: str) -> None:
        """Go on without graphs, because memory ran out ``where``."""
        self.stopped = True
        self._forget()
        logger.warning("going on without CUDA graphs, because memory ran out %s", where)

    def _stop(self, reason: str) -> None:
        if self.strict:
            raise UserError(f"--cuda-graphs on: {reason}; use auto or off")
        self.stopped = True
        self._forget()
        logger.warning("going on without CUDA graphs: %s", reason)

    def _forget(self) -> None:
        """Drop all graphs and their memory."""
        self.steps.clear()
        self.recorder = Recorder(self.device)

    def _say(self, what: str) -> None:
        if what not in self.said:
            self.said.add(what)
            logger.info("%s", what)
