"""Forward, criterion and backward read no value from the device and draw no random number on the host.

Models are on torch's device ``meta``, which has no values, with dropout; the host is the CPU.
"""

import pytest
from editors import batch as triplets
from editors import task as editing_task
from fairseq import models
from fairseq.criterions.adaptive_loss import AdaptiveLoss
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.criterions.masked_lm import MaskedLmConfig, MaskedLmLoss
from fairseq.models import ARCH_MODEL_REGISTRY
from helpers import batch, parse, translation_task
from no_gpu import HostInTheLoop, NoHost, take_triton_kernels

from user_dir.graphs.training import why_never, why_not_now
from user_dir.tasks.entmax_loss import EntmaxLossCriterion

OURS = "adaptively_sparse_"
TRANSLATOR, EDITOR = OURS + "transformer", OURS + "post_editor"
LM, MASKED_LM = OURS + "transformer_lm", OURS + "masked_lm"
ARCHITECTURES = {name for name in ARCH_MODEL_REGISTRY if name.startswith(OURS)}
OTHER_SIZES = sorted(ARCHITECTURES - {TRANSLATOR, EDITOR, LM, MASKED_LM})
SIZES = " ".join(
    f"--{side}-embed-dim 16 --{side}-ffn-embed-dim 24 --{side}-layers 2 --{side}-attention-heads 2"
    for side in ("encoder", "decoder")
)
DROPOUT = "--dropout 0.1 --attention-dropout 0.1 --activation-dropout 0.1"
BANDS = "--adaptive-softmax-cutoff 6,12"
# Reasons against a graph although nothing is read: figures for the log, the state of random numbers.
OTHER_REASONS = {"--latent-alignment-soft": "for the log line", "--checkpoint-activations": "checkpointed"}


@pytest.fixture(autouse=True)
def _as_on_a_gpu(monkeypatch):
    take_triton_kernels(monkeypatch)
    monkeypatch.setattr("user_dir.attention.triton.passes_check", lambda *args, **options: True)


def model_and_update(arch, flags=""):
    """A small model in training; and a function: loss and gradients of a batch with padding."""
    editing = arch.startswith((EDITOR, MASKED_LM))
    task = editing_task() if editing else translation_task()
    sizes = SIZES
    if arch.startswith(LM):
        sizes = f"--task language_modeling --tokens-per-sample 32 {SIZES.partition('--decoder')[2]}"
        sizes = sizes.replace(" 32 -", " 32 --decoder-", 1)
    task.args = parse(f"{sizes} {DROPOUT} {flags}", arch)
    model = models.build_model(task.args, task)
    model = model.train().to("meta")
    sample = {name: tensor.to("meta") for name, tensor in (triplets() if editing else batch()).items()}
    if arch.startswith(MASKED_LM):
        sample["target"] = sample["src_tokens"]
    sample["target"] = sample["target"].contiguous()
    inputs = {
        LM: {"src_tokens": sample["prev_output_tokens"]},
        MASKED_LM: {"src_tokens": sample["src_tokens"]},
    }
    family = next((name for name in inputs if arch.startswith(name)), None)
    update = {
        "net_input": inputs.get(family) or {name: sample[name] for name in sample if name != "target"},
        "target": sample["target"],
        "ntokens": 14,
        "nsentences": 3,
    }
    criterion = criterion_for(arch, flags, task)
    return model, criterion, lambda: criterion(model, update)[0].backward()


def criterion_for(arch, flags, task):
    if arch.startswith(MASKED_LM):
        return MaskedLmLoss(MaskedLmConfig(tpu=False), task)
    if "cutoff" in flags:
        return AdaptiveLoss(task, False)
    if "--output-alpha" in flags:
        return EntmaxLossCriterion(task, False, 0.1)
    if "--latent" in flags:
        return CrossEntropyCriterion(task, False)
    return LabelSmoothedCrossEntropyCriterion(task, False, 0.1, report_accuracy=False)


@pytest.mark.parametrize(
    ("arch", "flags"),
    [
        *((arch, "") for arch in (TRANSLATOR, EDITOR, LM, MASKED_LM)),
        *(pytest.param(arch, "", marks=pytest.mark.nightly) for arch in OTHER_SIZES),
        (TRANSLATOR, "--output-alpha 1.5"),
        (TRANSLATOR, "--fixed-alpha 1.5 --attention-backend dense"),
        (TRANSLATOR, "--attention-normalizer softmax --length-scaling"),
        (TRANSLATOR, "--attention-normalizer rela"),
        (TRANSLATOR, "--cross-self-attention --no-cross-attention"),
        (TRANSLATOR, "--encoder-learned-pos --decoder-learned-pos --layernorm-embedding"),
        (TRANSLATOR, "--checkpoint-activations"),
        (TRANSLATOR, "--latent-alignment --latent-alignment-soft"),
        (TRANSLATOR, "--latent-alignment"),
        (TRANSLATOR, "--encoder-layerdrop 0.5"),
        (TRANSLATOR, "--decoder-layerdrop 0.5"),
        (TRANSLATOR, BANDS),
    ],
)
def test_the_host_is_in_the_loop_only_for_the_reason_given(arch, flags):
    model, criterion, update = model_and_update(arch, flags)
    reason = why_never(model, criterion) or why_not_now(model)
    other = [words for words in OTHER_REASONS.values() if words in str(reason)]
    assert other == [words for flag, words in OTHER_REASONS.items() if flag in flags]
    with NoHost():
        if reason is None or other:
            update()
            assert all(parameter.grad is not None for parameter in model.parameters())
        else:
            with pytest.raises(HostInTheLoop):
                update()


@pytest.mark.parametrize(
    ("flags", "until"),
    (
        ("--alpha-schedule linear --alpha-schedule-updates 5", 5),
        ("--alpha-freeze-updates 4", 4),
        ("--output-alpha 1.5 --output-alpha-start 1 --output-alpha-updates 3", 3),
    ),
)
def test_a_graph_would_repeat_an_alpha_of_the_host(flags, until):
    model, criterion, _ = model_and_update(TRANSLATOR, flags)
    assert why_never(model, criterion) is None
    model.set_num_updates(until - 1)
    assert f"until update {until}" in why_not_now(model)
    model.set_num_updates(until)
    assert why_not_now(model) is None
