"""Oracles for α-entmax that share no code with user_dir; tolerances; models without data; tables; scripts."""

from __future__ import annotations

import importlib.util
import itertools
import random
import subprocess
import sys
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
import torch
from fairseq import models, options
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder
from fairseq.models.transformer_lm import base_lm_architecture
from omegaconf import OmegaConf
from torch import Tensor

# ---------------------------------------------------------------------------------------- tolerances

# Largest absolute error of a weight for α in [1, 2], where a weight changes less than its score.
WEIGHT_TOLERANCE = {torch.float64: 1e-13, torch.float32: 1e-6}

# Largest error of a gradient, relative to the sum of the magnitudes of its terms.
GRADIENT_TOLERANCE = {torch.float64: 1e-11, torch.float32: 1e-5}

# For whole layers and models in float64: a few thousand roundings of 1e-16.
MODEL_TOLERANCE = {"rtol": 1e-9, "atol": 1e-11}

HALF_TYPES = (torch.float16, torch.bfloat16)


def assert_within(actual: Tensor, expected: Tensor, tolerance: Tensor | float, what: str = "value") -> None:
    """Check each entry against its own tolerance; report how many fail and where the worst one is."""
    assert actual.shape == expected.shape, f"{what}: shape {tuple(actual.shape)}, not {tuple(expected.shape)}"
    actual, expected = actual.detach().double(), expected.detach().double()
    tolerance = torch.as_tensor(tolerance, dtype=torch.float64).expand_as(expected)
    excess = (actual - expected).abs() / tolerance
    wrong = ~(excess <= 1)  # NaN fails
    if wrong.any():
        worst = excess.nan_to_num(nan=float("inf")).argmax()
        where = tuple(int(i) for i in torch.unravel_index(worst, expected.shape))
        raise AssertionError(
            f"{what}: {int(wrong.sum())} of {wrong.numel()} entries differ; the worst, at {where}, is "
            f"{actual.flatten()[worst]:.9g}, not {expected.flatten()[worst]:.9g} "
            f"(tolerance {tolerance.flatten()[worst]:.2g})"
        )


# ------------------------------------------------------------------------------ oracles for α-entmax


def entmax_oracle(scores: Tensor, alpha: Tensor | float, dim: int = -1) -> Tensor:
    """α-entmax in float64 by 200 bisections on the τ of p = [(α − 1) z − τ]₊^(1/(α − 1)).

    Source: Peters et al. 2019, equation 10.
    """
    z = scores.detach().double()
    alpha = torch.as_tensor(alpha, dtype=torch.float64).detach()
    empty = (z == float("-inf")).all(dim, keepdim=True)
    z = z.masked_fill(empty, 0.0)
    z = z - z.max(dim, keepdim=True).values
    exponential = torch.exp(z)
    softmax = exponential / exponential.sum(dim, keepdim=True)

    eps = torch.where(alpha == 1, 1.0, alpha - 1)
    scaled = eps * z
    high = torch.zeros_like(scaled.sum(dim, keepdim=True))
    low = high - 1.0
    for _ in range(200):
        tau = (low + high) / 2
        mass = (scaled - tau).clamp(min=0).pow(1 / eps).sum(dim, keepdim=True)
        low, high = torch.where(mass >= 1, tau, low), torch.where(mass >= 1, high, tau)
    p = (scaled - low).clamp(min=0).pow(1 / eps)
    p = p / p.sum(dim, keepdim=True)
    return torch.where(alpha == 1, softmax, p).masked_fill(empty, 0.0)


def entmax_oracle_gradients(
    p: Tensor, alpha: Tensor | float, grad: Tensor, dim: int = -1
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of scores and α, the latter per weight, and the magnitudes of their terms.

    Computed in float64, from weights in float64, exactly as in Proposition 1 of Correia et al. 2019.
    """
    alpha = torch.as_tensor(alpha, dtype=torch.float64).detach()
    p, g = p.detach().double(), grad.detach().double()
    support = p > 0
    log_p = torch.where(support, p.clamp(min=1e-300).log(), 0.0)
    w = torch.where(support, p.clamp(min=1e-300).pow(2 - alpha), 0.0)
    total = w.sum(dim, keepdim=True)
    skewed = torch.where(total > 0, w / total.clamp(min=1e-300), 0.0)
    dz = w * g - skewed * (g * w).sum(dim, keepdim=True)

    h = -p * log_p
    eps = torch.where(alpha == 1, 1.0, alpha - 1)
    above = (p - skewed) / eps**2 + (h - skewed * h.sum(dim, keepdim=True)) / eps
    at_one = (h * log_p - p * (h * log_p).sum(dim, keepdim=True)) / 2
    dp = torch.where(alpha == 1, at_one, above)
    return dz, g * dp, (g * dp).abs()


def mp_entmax(z: list[float], alpha: float) -> list[mpmath.mpf]:
    """α-entmax of one row with 60 digits, by bisection to that precision."""
    with mpmath.workdps(60):
        if alpha == 1:
            top = max(z)
            e = [mpmath.exp(mpmath.mpf(x) - mpmath.mpf(top)) for x in z]
            return [x / mpmath.fsum(e) for x in e]
        eps = mpmath.mpf(alpha) - 1
        top = max(z)
        scaled = [eps * (mpmath.mpf(x) - mpmath.mpf(top)) for x in z if x > float("-inf")]
        scaled = [x for x in scaled if x > -1]  # the others are certainly 0
        low, high = mpmath.mpf(-1), mpmath.mpf(0)
        for _ in range(200):
            tau = (low + high) / 2
            mass = mpmath.fsum((x - tau) ** (1 / eps) for x in scaled if x > tau)
            low, high = (tau, high) if mass >= 1 else (low, tau)
        shifted = [eps * (mpmath.mpf(x) - mpmath.mpf(top)) - low if x > float("-inf") else -1 for x in z]
        return [x ** (1 / eps) if x > 0 else mpmath.mpf(0) for x in shifted]


def mp_entmax_gradients(z: list[float], alpha: float, g: list[float]) -> tuple[list[float], float]:
    """Gradients of scores and α for one row, with 60 digits, exactly as in Proposition 1."""
    with mpmath.workdps(60):
        p = mp_entmax(z, alpha)
        support = [i for i, x in enumerate(p) if x > 0]
        g = [mpmath.mpf(x) for x in g]
        w = {i: p[i] ** (2 - mpmath.mpf(alpha)) for i in support}
        total = mpmath.fsum(w.values())
        mean = mpmath.fsum(w[i] * g[i] for i in support) / total
        dz = [w[i] * (g[i] - mean) if i in w else mpmath.mpf(0) for i in range(len(z))]
        h = {i: -p[i] * mpmath.log(p[i]) for i in support}
        entropy = mpmath.fsum(h.values())
        if alpha == 1:
            second = {i: h[i] * mpmath.log(p[i]) for i in support}
            dp = {i: (second[i] - p[i] * mpmath.fsum(second.values())) / 2 for i in support}
        else:
            eps = mpmath.mpf(alpha) - 1
            dp = {i: (p[i] - w[i] / total) / eps**2 + (h[i] - w[i] / total * entropy) / eps for i in support}
        return [float(x) for x in dz], float(mpmath.fsum(g[i] * dp[i] for i in support))


def weight_tolerance(p: Tensor, scores: Tensor, alpha: Tensor | float, dim: int = -1) -> Tensor:
    """Tolerance of a weight: that of the table, or the effect of a few roundings of the scores.

    The latter matters for α > 2, where a weight at the edge of the support changes arbitrarily fast. Since
    weights are normalised, its error affects the others.
    """
    alpha = torch.as_tensor(alpha, dtype=torch.float64)
    off = torch.where(alpha > 2, _moved(lambda u, eps: u.pow(1 / eps), p, alpha, scores.dtype), 0.0)
    return WEIGHT_TOLERANCE[scores.dtype] + off + p * off.sum(dim, keepdim=True)


def gradient_tolerances(
    p: Tensor, scores: Tensor, alpha: Tensor | float, grad: Tensor, dim: int = -1
) -> tuple[Tensor, Tensor]:
    """As :func:`weight_tolerance`, for the gradient of a score and each term of the gradient of α."""
    alpha = torch.as_tensor(alpha, dtype=torch.float64)
    span = 2 * grad.double().abs().amax(dim, keepdim=True)
    w = torch.where(p > 0, p.clamp(min=1e-300).pow(2 - alpha), 0.0)
    total = w.sum(dim, keepdim=True).clamp(min=1e-300)
    off = _moved(lambda u, eps: u.pow((1 - eps) / eps), p, alpha, scores.dtype)
    off = off + w * off.sum(dim, keepdim=True) / total
    scores_tolerance = (WEIGHT_TOLERANCE[scores.dtype] + off) * span

    off = _moved(lambda u, eps: u.pow(1 / eps) * (u.log() + 1 / u - 1) / eps**2, p, alpha, scores.dtype)
    return scores_tolerance, GRADIENT_TOLERANCE[scores.dtype] * p * span + off * span


def _moved(function, p: Tensor, alpha: Tensor, dtype: torch.dtype) -> Tensor:
    """The effect of a few roundings on a function of u = p^(α − 1) that is 0 outside the support."""
    eps = (alpha - 1).clamp(min=1e-3)  # below this, the effect does not grow
    shift = 8 * torch.finfo(dtype).eps * eps.clamp(min=1e-2)
    u = torch.where(p > 0, p.clamp(min=1e-300).pow(eps), 0.0)
    below = torch.where(u > shift, function((u - shift).clamp(min=1e-300), eps), 0.0)
    return (function(u + shift, eps) - below).abs()


# ------------------------------------------------------------------------------ fairseq without data

NUM_WORDS = 20


def dictionary() -> Dictionary:
    """fairseq's four special symbols and twenty words."""
    words = Dictionary()
    for i in range(NUM_WORDS):
        words.add_symbol(f"word{i}")
    return words


def checkpoint_state(settings: dict | None = None, **parts) -> dict:
    """The least that fairseq writes, with more ``settings`` of the model, and other ``parts``."""
    model = {"_name": "transformer", **(settings or {})}
    history = {"num_updates": 3, "optimizer_name": "FairseqAdam", "lr_scheduler_state": {}}
    return {
        "model": {"w": torch.ones(2)},
        "args": None,
        "cfg": {"model": model, "task": {"_name": "translation"}},
        "optimizer_history": [history],
        "extra_state": {"train_iterator": {"epoch": 1}},
        **parts,
    }


def binarise(prefix: Path, sentences, dtype: type = np.uint16) -> None:
    """Write ``prefix.bin`` and ``prefix.idx`` as fairseq-preprocess does; sentences are lists of symbols."""
    builder = MMapIndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype)
    for sentence in sentences:
        builder.add_item(torch.tensor(sentence))
    builder.finalize(f"{prefix}.idx")


def binarised_toy(root: Path) -> Path:
    """A folder with a sentence of each split where the configs of the toy corpus expect their data."""
    folder = root / "data" / "toy" / "bin"
    folder.mkdir(parents=True)
    for language in ("de", "en"):
        dictionary().save(str(folder / f"dict.{language}.txt"))
        for subset in ("train", "valid"):
            binarise(folder / f"{subset}.de-en.{language}", [[5, 6, 2]], np.int64)
    return root


def translation_task() -> SimpleNamespace:
    """The part of a task that is needed to build a model: the dictionaries."""
    return SimpleNamespace(source_dictionary=dictionary(), target_dictionary=dictionary())


SMALL = (
    "--encoder-embed-dim 16 --encoder-ffn-embed-dim 24 --encoder-layers 2 --encoder-attention-heads 4 "
    "--decoder-embed-dim 16 --decoder-ffn-embed-dim 24 --decoder-layers 2 --decoder-attention-heads 2 "
    "--dropout 0"
)


def parse(flags: str = "", arch: str = "adaptively_sparse_transformer") -> Namespace:
    """Parse flags as fairseq-train does."""
    parser = options.get_training_parser()
    return options.parse_args_and_arch(parser, input_args=["no-data", "--arch", arch, *flags.split()])


def build(flags: str = "", arch: str = "adaptively_sparse_transformer", seed: int = 1):
    """A small float64 model of an architecture, initialised from the seed."""
    args = parse(f"{SMALL} {flags}", arch)
    torch.manual_seed(seed)
    return models.build_model(args, translation_task()).double()


def peaked(flags: str = "", seed: int = 1, arch: str = "adaptively_sparse_transformer"):
    """One to evaluate, with distributions so far from uniform that no two hypotheses are equally good."""
    built = build(flags, arch, seed).eval()
    for name, parameter in built.named_parameters():
        if "embed_tokens" in name or "output_projection" in name:
            parameter.data.mul_(3)
        elif "bias" in name or "norm" in name:
            parameter.data.add_(torch.randn_like(parameter) / 5)
    return built


SMALL_LM = (
    "--task language_modeling --tokens-per-sample 32 --decoder-embed-dim 16 --decoder-ffn-embed-dim 24 "
    "--decoder-layers 2 --decoder-attention-heads 4 --dropout 0"
)


def build_language_model(flags: str = "", arch: str = "adaptively_sparse_transformer_lm", seed: int = 1):
    """A small float64 language model in evaluation mode, initialised from the seed."""
    args = parse(f"{SMALL_LM} {flags}", arch)
    words = dictionary()
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words, args=args)
    torch.manual_seed(seed)
    if arch == "transformer_lm":  # fairseq fills its settings in elsewhere
        base_lm_architecture(args)
        return models.ARCH_MODEL_REGISTRY[arch].build_model(args, task).double().eval()
    return models.build_model(args, task).double().eval()


def batch(left_pad: bool = True) -> dict[str, Tensor]:
    """Three sentence pairs of unequal length, in the layout that fairseq passes to a model."""
    words = dictionary()
    generator = torch.Generator().manual_seed(7)

    def tokens(lengths, left):
        rows = torch.full((len(lengths), max(lengths)), words.pad())
        for row, length in zip(rows, lengths):
            sentence = torch.randint(words.nspecial, len(words), (length,), generator=generator)
            sentence[-1] = words.eos()
            row[-length:] = sentence if left else row[-length:]
            row[:length] = row[:length] if left else sentence
        return rows

    target = tokens((6, 3, 5), left=False)
    previous = target.roll(1, dims=1)
    previous[:, 0] = words.eos()
    return {
        "src_tokens": tokens((7, 5, 2), left=left_pad),
        "src_lengths": torch.tensor([7, 5, 2]),
        "prev_output_tokens": previous.masked_fill(target == words.pad(), words.pad()),
        "target": target,
    }


def loss(model, sample: dict[str, Tensor]) -> Tensor:
    """Summed negative log-likelihood of the target, as in fairseq's criteria but not in float32."""
    logits, _ = model(sample["src_tokens"], sample["src_lengths"], sample["prev_output_tokens"])
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1),
        sample["target"].flatten(),
        ignore_index=model.encoder.padding_idx,
        reduction="sum",
    )


DENSE = "user_dir.attention.dense.dense_attention"  # to be replaced in tests of which backend is taken


def computed(implementation, *arguments, **named):
    """Attention by one implementation, of the arguments of ``user_dir.attention.attention``."""
    from user_dir.attention import AttentionInputs

    return implementation(AttentionInputs(*arguments, **named))


def combinations(**choices) -> list[dict]:
    """Every combination of the values given for each name."""
    return [dict(zip(choices, values)) for values in itertools.product(*choices.values())]


def covering(**choices) -> list:
    """Combinations as test parameters: a subset that covers each pair of values.

    For the nightly tests also the others, or 500 of them.
    """
    cases = combinations(**choices)
    pairs = [set(itertools.combinations(enumerate(map(repr, case.values())), 2)) for case in cases]
    missing, chosen = set().union(*pairs), set()
    while missing:
        best = max(range(len(cases)), key=lambda i: len(pairs[i] & missing))
        chosen.add(best)
        missing -= pairs[best]
    others = random.Random(1).sample(range(len(cases)), min(len(cases), 500))
    return [_nightly_unless(i in chosen, cases[i]) for i in sorted(chosen.union(others))]


def each_once(**choices) -> list:
    """As :func:`covering`, with a subset that only covers every single value."""
    cases = combinations(**choices)
    length = max(map(len, choices.values()))
    chosen = [{name: values[i % len(values)] for name, values in choices.items()} for i in range(length)]
    return [_nightly_unless(case in chosen, case) for case in cases]


def _nightly_unless(chosen: bool, case: dict):
    return pytest.param(case, id=str(case), marks=[] if chosen else pytest.mark.nightly)


def cells_of(text: str) -> list[list[str]]:
    """The cells of every row of the Markdown tables of a text."""
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.split("\n") if line[:1] == "|"]


def script_module(name: str):
    """Import the command ``NAME``, or ``scripts/NAME.py``, as a new module."""
    root = Path(__file__).resolve().parent.parent
    path = root / "user_dir" / "commands" / f"{name}.py"
    if not path.is_file():
        path = root / "scripts" / f"{name}.py"
    package = "user_dir.commands." if path.parent.name == "commands" else ""
    spec = importlib.util.spec_from_file_location(package + name, path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))  # as of a script that is run
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


def printed_alone(program: str) -> str:
    """What a Python program prints in a process of its own, in the repository's root."""
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def whole_config(path: Path) -> dict:
    """A training config merged with the base config it shares with others."""
    parts = [OmegaConf.load(path)]
    names = [name for name in parts[0].pop("defaults", []) if name != "_self_"]
    parts += [OmegaConf.load(path.with_name(f"{name}.yaml")) for name in names]
    return OmegaConf.to_container(OmegaConf.merge(*parts))


# --------------------------------------------------------------------------- hostile checkpoints


class Runs:
    """What pickles as a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


class Disguised(OrderedDict):
    """Pickled as an OrderedDict with items, and attributes beside them, which fairseq would read."""

    def __reduce__(self):
        return OrderedDict, (), vars(self), None, iter(self.items())
