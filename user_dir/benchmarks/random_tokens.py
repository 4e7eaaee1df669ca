"""Training speed of base models on random tokens with the lengths of IWSLT; needs no corpus."""

from __future__ import annotations

import functools
from argparse import Namespace
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from fairseq import options
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY

from .measure import interleaved, seconds
from .speed import speed_rows

WORDS = 10000
STOCK = "stock transformer"
OURS = "ours, α-entmax"
# name → architecture and flags; both architectures are base models with post-norm
SYSTEMS = {
    STOCK: ("transformer_wmt_en_de", ""),
    "ours, softmax": ("adaptively_sparse_transformer_wmt_en_de", "--attention-normalizer softmax"),
    "ours, α-entmax, dense": ("adaptively_sparse_transformer_wmt_en_de", "--attention-backend dense"),
    OURS: ("adaptively_sparse_transformer_wmt_en_de", ""),
}


def time_training(
    device: torch.device,
    dtype: torch.dtype,
    updates: int,
    rounds: int,
    seed: int,
    max_tokens: int = 4096,
    flags: str = "",
) -> list[dict]:
    """Training speed per system in pure ``dtype``: ``tokens_per_second`` (target) and ``to_stock``.

    Each round has ``updates`` updates on batches of ``max_tokens``; ``flags`` apply to all systems.
    """
    dictionary = Dictionary()
    for number in range(WORDS):
        dictionary.add_symbol(f"w{number}")
    samples = [
        {name: tensor.to(device) for name, tensor in sample.items()}
        for sample in batches(updates, max_tokens, dictionary, seed)
    ]
    tokens = sum(int(sample["target"].ne(dictionary.pad()).sum()) for sample in samples)
    runners = {}
    for name, (arch, own) in SYSTEMS.items():
        torch.manual_seed(seed)
        model = _build(arch, f"{flags} {own}", dictionary).to(device, dtype)
        model.train()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, fused=device.type == "cuda")
        runners[name] = functools.partial(_train, model, optimizer, samples)
        runners[name]()  # warm-up
    jobs = {name: functools.partial(lambda run, number: seconds(run), run) for name, run in runners.items()}
    times = interleaved(jobs, rounds, seed, "training")
    return speed_rows(times, [tokens] * rounds, "tokens_per_second", STOCK)


def batches(count: int, max_tokens: int, dictionary: Dictionary, seed: int) -> list[dict]:
    """Batches of sentences of similar length: log-normal, median 20, mean 24 tokens, as in IWSLT 2014."""
    generator = torch.Generator().manual_seed(seed)
    lengths = (20 * torch.exp(0.6 * torch.randn(60000, generator=generator))).round().clamp(3, 175).int()
    lengths = lengths.sort().values.tolist()
    groups, first = [], 0
    while first < len(lengths):
        last = first + 1
        while last < len(lengths) and lengths[last] * (last + 1 - first) <= max_tokens:
            last += 1
        groups.append(lengths[first:last])
        first = last
    order = torch.randperm(len(groups), generator=generator)[:count].tolist()
    return [_batch(groups[i], dictionary, generator) for i in order]


def _batch(lengths: list[int], dictionary: Dictionary, generator: torch.Generator) -> dict:
    def tokens(left: bool) -> torch.Tensor:
        rows = torch.randint(
            dictionary.nspecial, len(dictionary), (len(lengths), max(lengths)), generator=generator
        )
        padded = torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None]
        return rows.masked_fill_(padded.flip(1) if left else padded, dictionary.pad())

    target = tokens(left=False)
    previous = target.roll(1, dims=1)
    previous[:, 0] = dictionary.eos()
    known = {"lengths": torch.tensor(lengths), "previous": previous, "target": target}
    return {"source": tokens(left=True), **known}


def _build(arch: str, flags: str, dictionary: Dictionary):
    parser = options.get_training_parser()
    given = ["no-data", "--arch", arch, "--share-all-embeddings", *flags.split()]
    args: Namespace = options.parse_args_and_arch(parser, input_args=given)
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, task)


def _train(model, optimizer, samples: list[dict]) -> None:
    """One update on each batch."""
    advance = getattr(model, "after_update", model.set_num_updates)  # ours records α as well
    for update, sample in enumerate(samples, start=1):
        advance(update)
        optimizer.zero_grad()
        logits, _ = model(sample["source"], sample["lengths"], sample["previous"])
        padding = model.encoder.padding_idx
        loss = F.cross_entropy(
            logits.flatten(0, 1).float(),
            sample["target"].flatten(),
            ignore_index=padding,
            label_smoothing=0.1,
        )
        loss.backward()
        optimizer.step()
