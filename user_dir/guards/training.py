"""fairseq's trainings: their start, their workers and optimizers, validation, losses, and their end.

Every fault repaired here is in all versions from 0.12.2 on.
"""

import atexit
import logging
import math
import os
import sys
import threading
from argparse import Namespace
from collections.abc import Collection
from unittest.mock import patch

import torch
from fairseq import options
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy_with_rdrop import RdropLabelSmoothedCrossEntropyCriterion
from fairseq.data.iterators import BackgroundConsumer, CountingIterator
from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.utils import merge_with_parent
from fairseq.distributed import utils
from fairseq.logging import progress_bar
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.optim.composite import FairseqCompositeOptimizer
from fairseq.tasks.translation import TranslationTask
from fairseq.trainer import Trainer
from omegaconf import DictConfig, open_dict

from ..corpora.languages import language
from ..models.layers import AdaptivelySparseDecoder
from ..models.smoothed_loss import SmoothedLoss
from . import around

logger = logging.getLogger(__name__)


# ----------------------------------------------------------------------------------------- settings


@around(options, "parse_args_and_arch")
def parse_args_and_arch(parse, parser, input_args=None, *args, **kwargs):
    """Let ``--bf16`` mean bfloat16 alone; fairseq's parser asks for a TPU as well."""
    parsed = parse(parser, input_args, *args, **kwargs)
    settings = parsed[0] if isinstance(parsed, tuple) else parsed  # a tuple with unknown arguments
    if getattr(settings, "bf16", False):
        settings.tpu = "--tpu" in (sys.argv if input_args is None else input_args)
    return parsed


@around(Trainer, "__init__")
def keep_whole_settings(begin, self, cfg, task, model, *args, **kwargs):
    """Write all settings that a model was built with to its checkpoints: fairseq keeps only those given.

    These settings include the defaults of the model, and what it takes over from a pretrained one.
    """
    name = cfg.model._name if isinstance(cfg.model, DictConfig) else None
    if name in MODEL_DATACLASS_REGISTRY:
        with open_dict(cfg):
            cfg.model = merge_with_parent(MODEL_DATACLASS_REGISTRY[name](), cfg.model)
            for key, value in vars(getattr(model, "resolved", None) or Namespace()).items():
                if key in cfg.model:
                    cfg.model[key] = value
    begin(self, cfg, task, model, *args, **kwargs)


# ------------------------------------------------------------------------------------------ workers
# fairseq reads torchrun's variables only if it counts several GPUs, and has worker 0 read a checkpoint and
# broadcast it as a pickle, which PyTorch 2.6 and later refuse.


def launched_workers(ddp_backend: str, cpu: bool) -> dict[str, object]:
    """The ``distributed_training`` settings that join the workers started by ``torchrun``.

    fairseq divides by the number of GPUs: without GPUs, each process would train its own model and overwrite
    the checkpoints of the others. ``ddp_backend`` is the configured one, including fairseq's default; ``cpu``
    requests a CPU even if there is a GPU. The result is empty outside torchrun, or for one process.
    """
    names = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK")
    if not all(name in os.environ for name in names) or os.environ["WORLD_SIZE"] == "1":
        return {}
    settings = {
        "distributed_init_method": "env://",
        "distributed_world_size": int(os.environ["WORLD_SIZE"]),
        "distributed_rank": int(os.environ["RANK"]),
        "device_id": int(os.environ["LOCAL_RANK"]),
        "distributed_no_spawn": True,
    }
    if cpu or not torch.cuda.is_available():
        settings["distributed_backend"] = "gloo"  # NCCL is for GPUs
        if ddp_backend in ("c10d", "pytorch_ddp"):
            # fairseq would name a GPU, which torch rejects for a model on a CPU. Gradients are the same.
            settings["ddp_backend"] = "legacy_ddp"
    return settings


@around(utils, "call_main")
def call_main(call, cfg: FairseqConfig, main, **kwargs):
    """Let training commands join the workers; others, such as fairseq-validate, have no model."""
    if getattr(cfg, "model", None) is not None:
        cfg.checkpoint.load_checkpoint_on_all_dp_ranks = True
        distributed = cfg.distributed_training
        if distributed.distributed_init_method is None:
            for name, value in launched_workers(distributed.ddp_backend, cfg.common.cpu).items():
                distributed[name] = value
    return call(cfg, main, **kwargs)


@atexit.register
def end_prefetching(others: Collection[threading.Thread] = (), seconds: float = 30) -> None:
    """End each thread that prepares batches, except ``others``, and its workers, after the current batch.

    A thread that is still alive when the process ends would abort it.
    """
    for thread in threading.enumerate():
        if isinstance(thread, BackgroundConsumer) and thread not in others:
            thread._max_len = 0  # makes the current batch the last one
            with thread._queue.mutex:
                thread._queue.maxsize = math.inf
                thread._queue.not_full.notify_all()
            thread.join(seconds)


class Closed(CountingIterator):
    """fairseq's batches; once the loop over them has ended, no more are prepared."""

    def __iter__(self):
        before = threading.enumerate()
        try:
            yield from self._itr
        finally:
            end_prefetching(before)


@around(progress_bar, "progress_bar")
def show_progress(show, iterator, *args, **kwargs):
    """Close iterators that ``--max-valid-steps`` cuts short: each validation would keep 61 files open."""
    if isinstance(iterator, CountingIterator):
        iterator = Closed(iterator, total=len(iterator))
    return show(iterator, *args, **kwargs)


# ------------------------------------------------------------------------------------------ updates


@around(Trainer, "train_step")
def train_step(step, self, *args, **kwargs):
    """Call ``model.after_update(n)`` before the first update of a run and after each; report NaN in words.

    fairseq calls ``set_num_updates`` only when the next update begins, after checkpoints and validation.
    PyTorch's hook after an optimizer step comes too early: in half precision the model still has the previous
    parameters.
    """
    report = getattr(self.get_model(), "after_update", lambda updates: None)
    report(self.get_num_updates())
    try:
        logged = step(self, *args, **kwargs)
    except Exception as error:  # looking for NaN, fairseq may fail itself
        if not any("Nan/Inf" in str(cause) for cause in (error, error.__context__)):
            raise
        raise FloatingPointError(f"gradients of update {self.get_num_updates() + 1} are NaN") from error
    report(self.get_num_updates())
    return logged


DEFAULT = "default"


@around(FairseqCompositeOptimizer, "__init__")
def build_optimizer(build, self, cfg, params):
    """Build the optimizer ``composite``, with parameters of groups without settings in the group ``default``.

    A parameter names its group: those that start from a BERT are in ``bert``, those of α in ``alpha``, all
    others in ``default``. fairseq needs settings for each of these groups. A second optimizer of a process
    would also step the parameters of the first.
    """
    params = list(params)
    missing = {getattr(parameter, "param_group", DEFAULT) for parameter in params} - set(cfg.groups)
    if missing and not cfg.dynamic_groups:
        logger.info("optimizer.groups: %s as %s", ", ".join(sorted(missing)), DEFAULT)
        for parameter in params:
            if getattr(parameter, "param_group", DEFAULT) in missing:
                parameter.param_group = DEFAULT
    self.optimizers, self.lr_schedulers = {}, {}  # instead of the class's, which keeps all groups
    build(self, cfg, params)


# --------------------------------------------------------------------------------------- validation


@around(TranslationTask, "_inference_with_bleu")
def score_by_language(inference, self, generator, sample, model):
    """Score ``--eval-bleu`` with sacrebleu's tokenizer of the target language, unless tokens are scored.

    fairseq always takes 13a, by which a sentence written without spaces is one word.
    """
    import sacrebleu  # here, because trainings without --eval-bleu start without it

    stock, tokenizer = sacrebleu.corpus_bleu, language(self.cfg.target_lang or "").tokenizer

    def corpus_bleu(hypotheses, references, **options):
        return stock(hypotheses, references, **{"tokenize": tokenizer, **options})

    with patch.object(sacrebleu, "corpus_bleu", corpus_bleu):
        bleu = inference(self, generator, sample, model)
    bleu.totals[0] = max(bleu.totals[0], 1)  # else fairseq has no BLEU where all translations are empty
    return bleu


@around(RdropLabelSmoothedCrossEntropyCriterion, "forward")
def keep_batch(forward, self, model, sample, *args, **kwargs):
    """Leave the batch as it is, for ``--eval-bleu``; fairseq doubles its input in place."""
    return forward(self, model, {**sample, "net_input": {**sample["net_input"]}}, *args, **kwargs)


# ---------------------------------------------------------------------------------- label smoothing
# fairseq keeps three float32 copies of the scores of a whole batch, more than all the rest of a small model's
# update (125 MiB each for 2,048 tokens × 16,000 pieces), and reads each from end to end.


@around(LabelSmoothedCrossEntropyCriterion, "compute_loss")
def compute_loss(compute, self, model, net_output, sample, reduce=True):
    """On a CPU, compute the loss in parts if it is known to be a sum over the rows of the scores."""
    scores = net_output[0]
    on_cpu = scores.device.type == "cpu" and scores.dtype != torch.float16
    if not reduce or self.ignore_prefix_size or not on_cpu or not _is_softmax(model):
        return compute(self, model, net_output, sample, reduce=reduce)
    target = model.get_targets(sample, net_output)
    return SmoothedLoss.apply(scores.flatten(0, -2), target.reshape(-1, 1), self.eps, self.padding_idx)


def _is_softmax(model) -> bool:
    """Whether probabilities are the softmax of the scores, and nothing else, in a model of this package."""
    decoder = getattr(model, "decoder", None)
    own = getattr(type(decoder), "get_normalized_probs", None) is AdaptivelySparseDecoder.get_normalized_probs
    plain = own and decoder.adaptive_softmax is None and not decoder.gives_log_probs
    return plain and decoder.output_normalizer.alpha() == 1
