"""The updates of a training, replayed where they can be."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import torch
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.logging import metrics
from fairseq.modules import AdaptiveInput, AdaptiveSoftmax, LayerDropModuleList
from fairseq.optim import FairseqOptimizer, FP16Optimizer, MemoryEfficientFP16Optimizer
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from ..attention import Alpha
from ..entmax import has_native
from ..errors import UserError, one_line
from ..models.dial import TrainingDial
from ..models.heads import SparseHeads
from ..models.latent_alignment import LatentAlignment
from ..models.layers import OutputNormalizer
from .recorder import Recorder
from .shapes import Shape, StaticBatch, fitting, shape_of, shapes_of, unknown_entry

logger = logging.getLogger(__name__)

CHOICES = ("auto", "off", "on")  # of --cuda-graphs
# Their losses are sums over words, or sentences, in which padding has no weight.
CRITERIONS = {CrossEntropyCriterion, LabelSmoothedCrossEntropyCriterion}
# Their backward is that of the loss, times the loss scale of half precision.
BACKWARDS = {FairseqOptimizer.backward, FP16Optimizer.backward, MemoryEfficientFP16Optimizer.backward}
HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


# ------------------------------------------------------------------------------- whether there are graphs


def training_graphs(trainer, iterator) -> TrainingGraphs | None:
    """The graphs of a training of fairseq's on the batches of an iterator; None if it gets none.

    Raises:
        UserError: ``--cuda-graphs`` is unknown, or ``on`` although graphs are impossible.
    """
    if not isinstance(trainer.get_model(), SparseHeads):
        return None
    setting = str(trainer.cfg.model.cuda_graphs)
    setting = {"True": "on", "False": "off"}.get(setting, setting)  # YAML reads on as true
    if setting not in CHOICES:
        raise UserError(f"unknown --cuda-graphs {setting!r}: choose from {', '.join(CHOICES)}")
    if setting == "off" or (setting == "auto" and not trainer.cuda):
        return None
    reason = _why_not_in(trainer) or why_never(trainer.get_model(), trainer.get_criterion())
    if reason is None:
        shapes = shapes_of(iterator.dataset, iterator.frozen_batches)
        if shapes:
            return TrainingGraphs(trainer, iterator.dataset, shapes, strict=setting == "on")
        reason = f"there are no few shapes for batches of a {type(iterator.dataset).__name__}"
    if setting == "on":
        raise UserError(f"--cuda-graphs on: {reason}; use auto or off")
    logger.info("training without CUDA graphs: %s", reason)
    return None


def _why_not_in(trainer) -> str | None:
    """Why no update of a training can be replayed, whatever the model; None if there is no reason."""
    cfg, task = trainer.cfg, type(trainer.task)
    if cfg.distributed_training.distributed_world_size > 1 or trainer.use_distributed_wrapper:
        return "workers exchange gradients within backward"
    if task.train_step is not FairseqTask.train_step:
        return f"the task {task.__name__} has its own training step"
    if type(trainer.optimizer).backward not in BACKWARDS:
        amp = "; use --fp16 or --bf16" if cfg.common.amp else ""
        return f"the optimizer {type(trainer.optimizer).__name__} has its own backward{amp}"
    return None


def why_never(model: nn.Module, criterion: nn.Module) -> str | None:
    """Why no correct graph of a model and its criterion can be recorded; None if one can."""
    if type(criterion) not in CRITERIONS:
        return f"the criterion is a {type(criterion).__name__}"
    if getattr(criterion, "report_accuracy", False):
        return "--report-accuracy counts words on the host"
    return next((reason for module in model.modules() for reason in _why_not_with(module)), None)


def _why_not_with(module: nn.Module) -> Iterator[str]:
    if isinstance(module, LayerDropModuleList) and module.p > 0:
        yield "layer drop draws on the host which layers run"
    if isinstance(module, (AdaptiveSoftmax, AdaptiveInput)):
        yield "adaptive input and softmax count the words of each band on the host"
    if isinstance(module, TrainingDial):
        yield "--keys-per-query counts keys on the host"
    if isinstance(module, LatentAlignment) and not module.soft:
        yield "a latent alignment counts the positions of nonzero probability on the host"
    if isinstance(module, LatentAlignment):
        yield "a latent alignment keeps means of the batch for the log line"
    if "forward" in vars(module):
        yield "activations are checkpointed, for which the host keeps the state of random numbers"
    if any(getattr(module, hooks) for hooks in HOOKS):
        yield f"a {type(module).__name__} has a hook"


def why_not_now(model: nn.Module) -> str | None:
    """Why a graph of this update cannot be recorded, or would be wrong in later ones; None if not."""
    alphas = [module for module in model.modules() if isinstance(module, (Alpha, OutputNormalizer))]
    if alphas and next(model.parameters()).is_cuda and not has_native("cuda"):
        return "without a Triton kernel, α-entmax waits for the device"
    for alpha in alphas:
        until = max(alpha.schedule_updates, getattr(alpha, "freeze_updates", 0))
        if alpha.updates < until:
            return f"alpha is set on the host until update {until}"
    return None


# ---------------------------------------------------------------------------- what wraps fairseq's methods


def get_train_iterator(get: Callable, trainer, *args, **kwargs):
    """The batches of fairseq's trainer; they are remembered, because graphs are made for their shapes."""
    trainer.train_iterator = get(trainer, *args, **kwargs)
    return trainer.train_iterator


def train_step(step: Callable, trainer, samples, raise_oom: bool = False):
    """An update by fairseq's trainer, of which some batches may be replayed; ``step`` is its method."""
    if not hasattr(trainer, "graphs"):
        iterator = getattr(trainer, "train_iterator", None)
        trainer.graphs = None if iterator is None else training_graphs(trainer, iterator)
    trainer.task.graphs = trainer.graphs  # a task may have several trainers
    if trainer.graphs is None:
        return step(trainer, samples, raise_oom)
    trainer.graphs.begin_update(len(samples))
    logged = step(trainer, samples, raise_oom)
    trainer.graphs.end_update()
    return logged


def valid_step(step: Callable, trainer, sample, raise_oom: bool = False):
    """Validate by fairseq's trainer; its retry with ``raise_oom``, after memory ran out, has no graphs."""
    if raise_oom and getattr(trainer, "graphs", None) is not None:
        trainer.graphs.release("memory ran out in validation")
    return step(trainer, sample, raise_oom)


def task_train_step(
    step: Callable, task, sample, model, criterion, optimizer, update_num, ignore_grad=False, **more
):
    """A batch of fairseq's task, replayed if it can be."""

    def plain() -> tuple:
        return step(task, sample, model, criterion, optimizer, update_num, ignore_grad, **more)

    graphs = getattr(task, "graphs", None)
    if graphs is None or ignore_grad or more:
        return plain()
    return graphs.step(plain, sample, optimizer, update_num)


# ------------------------------------------------------------------------------------------------- graphs


class Gradients:
    """The gradients, at fixed places, of those parameters that get one.

    fairseq sets ``.grad`` to None before each update, and autograd would then put each gradient at a new
    place. Parameters without a gradient keep none, so that optimizers go on leaving them alone.
    """

    def __init__(self) -> None:
        self.places: dict[nn.Parameter, Tensor] = {}

    def restore(self) -> bool:
        """Put every gradient in its place, None as 0. Returns whether all were None, as in a new update."""
        none = [parameter for parameter in self.places if parameter.grad is None]
        if none:
            torch._foreach_zero_([self.places[parameter] for parameter in none])
        for parameter, place in self.places.items():
            if parameter.grad is not None and parameter.grad is not place:
                place.copy_(parameter.grad)
            parameter.grad = place
        return len(none) == len(self.places)

    def adopt(self, parameters: Iterable[nn.Parameter]) -> bool:
        """Give a place to each gradient that has none. Returns whether there were any."""
        new = [p for p in parameters if p.grad is not None and p not in self.places]
        for parameter in new:
            self.places[parameter] = torch.empty_like(parameter).copy_(parameter.grad)
            parameter.grad = self.places[parameter]
        return bool(new)


class TrainingGraphs:
    """Stands in for the training step of fairseq's task, batch by batch.

    Args:
        trainer: fairseq's.
        dataset: what is trained on.
        shapes: the shapes that may get a graph.
        strict: end the training where a graph cannot be recorded, instead of going on without.
    """

    def __init__(self, trainer, dataset, shapes: list[Shape], strict: bool):
        self.model, self.criterion = trainer.get_model(), trainer.get_criterion()
        self.device, self.shapes, self.strict = trainer.device, shapes, strict
        words = trainer.task.target_dictionary or trainer.task.source_dictionary
        sides = {"source": ("src_tokens",), "target": ("prev_output_tokens", "target")}
        left = [names for side, names in sides.items() if getattr(dataset, f"left_pad_{side}", False)]
        self.layout = words.pad(), words.eos(), frozenset(chain(*left))
        parameters = chain(self.model.parameters(), self.criterion.parameters())
        self.parameters = [p for p in parameters if p.requires_grad]
        self.gradients = Gradients()
        self.scale = torch.ones((), device=self.device)  # of the loss; the optimizer's may change
        self.buffers: dict[Shape, StaticBatch] = {}
        self.replays: dict[Shape, Callable[[], tuple[Tensor, dict[str, Any]]]] = {}
        self.recorder = Recorder(self.device)
        self.stopped = False
        self.left = 0  # batches of the present update
        self.said: set[str] = set()
        how = "CUDA graphs" if trainer.cuda else "the buffers of CUDA graphs, without a GPU,"
        logger.info("training with %s for batches of %d shapes, the largest %s", how, len(shapes), shapes[-1])

    def begin_update(self, batches: int) -> None:
        """Called before the first batch of an update of ``batches`` batches."""
        self.left, self.batches, self.replayed = batches, batches, 0
        self.now = None if self.stopped else why_not_now(self.model)
        if self.now is not None:
            self._say(self.now)

    def end_update(self) -> None:
        """Log what was replayed."""
        metrics.log_scalar("replayed", self.replayed / max(self.batches, 1), 1, priority=850, round=2)
        metrics.log_scalar("graphs", len(self.replays), 0, priority=851)

    def step(self, plain: Callable[[], tuple], sample: dict, optimizer, update: int) -> tuple:
        """Do what the task's training step, ``plain()``, does: add up gradients, and return its results."""
        if self.stopped:
            return plain()
        self.left -= 1
        shape = self._shape(sample) if self.left >= 0 else None  # below 0, fairseq repeats a failed update
        compute = plain if shape is None else lambda: self._on_buffers(shape, sample, optimizer, update)
        alone = self.gradients.restore()
        try:
            return self._adopted(compute())
        except torch.cuda.OutOfMemoryError:
            if not alone or not self.buffers:
                raise  # fairseq leaves out the batch
        # Not in the except clause, where the exception keeps the computed tensors alive.
        self.release("memory ran out in training")
        for parameter in self.parameters:
            parameter.grad = None
        self.gradients.restore()
        return self._adopted(plain())

    def release(self, reason: str) -> None:
        """Go on without graphs."""
        self.stopped = True
        self.buffers.clear()
        self._forget()
        logger.warning("going on without CUDA graphs: %s", reason)

    def _adopted(self, result: tuple) -> tuple:
        """The result of a batch, its gradients in their places; graphs recorded without these are dropped."""
        if self.gradients.adopt(self.parameters):
            self._forget()
        return result

    def _shape(self, sample: dict) -> Shape | None:
        """The shape that a batch is padded to, if any."""
        if self.now is not None:
            return None
        unknown = unknown_entry(sample)
        return self._say(unknown) if unknown else fitting(self.shapes, shape_of(sample))

    def _on_buffers(self, shape: Shape, sample: dict, optimizer, update: int) -> tuple:
        if shape not in self.buffers:
            self.buffers[shape] = StaticBatch(sample, shape, *self.layout)
        batch = self.buffers[shape]
        batch.fill(sample)
        scaler = getattr(optimizer, "scaler", None)
        self.scale.fill_(1.0 if scaler is None else scaler.loss_scale)
        self.model.set_num_updates(update)
        if shape in self.replays:
            loss, logged = self.replays[shape]()
            self.replayed += 1
        else:
            loss, logged = self.recorder.run(lambda: self._compute(batch))
            self._record(shape, batch)
        if hasattr(optimizer, "_needs_sync"):
            optimizer._needs_sync = True  # fairseq's own backward sets it
        return self._returned(loss, logged, sample)

    def _compute(self, batch: StaticBatch) -> tuple[Tensor, dict[str, Any]]:
        loss, _, logged = self.criterion(self.model, batch.sample)
        (loss * self.scale).backward()
        return loss.detach(), logged

    def _returned(self, loss: Tensor, logged: dict[str, Any], sample: dict) -> tuple:
        """Copies of the results, safe from the next replay, with the counts of the batch before padding."""
        logged = {name: x.clone() if isinstance(x, Tensor) else x for name, x in logged.items()}
        words, sentences = sample["ntokens"], sample["target"].size(0)
        size = sentences if self.criterion.sentence_avg else words
        return loss.clone(), size, {**logged, "ntokens": words, "nsentences": sentences, "sample_size": size}

    def _record(self, shape: Shape, batch: StaticBatch) -> None:
        """Adopt the gradients of what was just computed, then record it."""
        if self.gradients.adopt(self.parameters):
            self._forget()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # while a graph is being recorded, torch cannot free what it keeps
        try:
            self.replays[shape] = self.recorder.record(lambda: self._compute(batch))
        except RuntimeError as error:
            reason = f"recording failed: {one_line(error)[:300]}"
            if self.strict:
                raise UserError(f"--cuda-graphs on: {reason}; use auto or off") from None
            self.release(reason)  # all graphs: torch has replaced the random generator that they use

    def _forget(self) -> None:
        """Drop all graphs and their memory."""
        self.replays.clear()
        self.recorder = Recorder(self.device)

    def _say(self, reason: str) -> None:
        if reason not in self.said:
            self.said.add(reason)
            logger.info("updates are not replayed: %s", reason)
