"""What a CUDA graph would get wrong, or cannot record, of a training: only what is known is replayed."""

from __future__ import annotations

from collections.abc import Iterator

from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.models.transformer import TransformerModel
from fairseq.modules import AdaptiveInput, AdaptiveSoftmax, LayerDropModuleList
from fairseq.optim import FairseqOptimizer, FP16Optimizer, MemoryEfficientFP16Optimizer
from fairseq.tasks import FairseqTask
from torch import nn

from ..attention import Alpha
from ..criterions import EntmaxLossCriterion
from ..entmax import has_native
from ..entmax.self_check import entmax_check, loss_check
from ..modules import LatentAlignment, OutputNormalizer
from ..sections import architecture

# Their losses are sums over words, or sentences, in which padding has no weight.
CRITERIONS = (CrossEntropyCriterion, LabelSmoothedCrossEntropyCriterion, EntmaxLossCriterion)
# Their backward is that of the loss, times the loss scale of half precision.
BACKWARDS = {each.backward for each in (FairseqOptimizer, FP16Optimizer, MemoryEfficientFP16Optimizer)}

HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def is_ours(model_settings) -> bool:
    """Whether the settings are of a model of this plugin."""
    return str(architecture(model_settings)).startswith("adaptively_sparse")


def why_no_graphs(trainer) -> str | None:
    """Why no update of a training of fairseq's can be replayed; None if nothing is known against it."""
    reasons = (_of_training(trainer), why_never(trainer.get_model(), trainer.get_criterion()))
    return next(filter(None, reasons), None)


def why_never(model: nn.Module, criterion: nn.Module) -> str | None:
    """Why no graph of a model and its criterion can be recorded, or would be right."""
    if type(criterion) not in CRITERIONS:
        return f"the criterion is a {type(criterion).__name__}"
    if getattr(criterion, "report_accuracy", False):
        return "--report-accuracy counts words on the host"
    return next((reason for module in model.modules() for reason in _of_module(module)), None)


def why_not_now(model: nn.Module) -> str | None:
    """Why a graph of the present update cannot be recorded, or would be wrong in a later one."""
    alphas = [module for module in model.modules() if isinstance(module, (Alpha, OutputNormalizer))]
    if alphas and next(model.parameters()).is_cuda and not has_native("cuda"):
        return "without a Triton kernel, α-entmax waits for the device"
    for check in (entmax_check, loss_check):
        if alphas and check.failed:
            return f"{check.kernel} fails its self-check, and plain torch waits for the device"
    for alpha in alphas:
        until = max(alpha.schedule_updates, getattr(alpha, "freeze_updates", 0))
        if alpha.updates < until:
            return f"alpha is set on the host until update {until}"
    return None


def _of_training(trainer) -> str | None:
    cfg, model, task = trainer.cfg, trainer.get_model(), type(trainer.task)
    if cfg.distributed_training.distributed_world_size > 1 or trainer.use_distributed_wrapper:
        return "workers exchange gradients within backward"
    if trainer.tpu or trainer.pipeline_model_parallel or trainer.is_fsdp:
        return "the model is not whole on one GPU"
    if task.train_step is not FairseqTask.train_step:
        return f"the task {task.__name__} has its own training step"
    if not is_ours(cfg.model) and type(model) is not TransformerModel:
        return f"the model is a {type(model).__name__}"
    if type(trainer.optimizer).backward not in BACKWARDS:
        amp = "; use --fp16 or --bf16" if cfg.common.amp else ""
        return f"the optimizer {type(trainer.optimizer).__name__} has its own backward{amp}"
    return None


def _of_module(module: nn.Module) -> Iterator[str]:
    if isinstance(module, LayerDropModuleList) and module.p > 0:
        yield "layer drop draws on the host which layers run"
    if isinstance(module, (AdaptiveSoftmax, AdaptiveInput)):
        yield "adaptive input and softmax count the words of each band on the host"
    if isinstance(module, LatentAlignment) and not module.soft:
        yield "a latent alignment counts the positions of nonzero probability on the host"
    if isinstance(module, LatentAlignment):
        yield "a latent alignment keeps means of the batch for the log line"
    if "forward" in vars(module):
        yield "activations are checkpointed, for which the host keeps the state of random numbers"
    if getattr(module, "use_xformers", False):
        yield "attention is that of xformers"
    if any(getattr(module, hooks) for hooks in HOOKS):
        yield f"a {type(module).__name__} has a hook"
