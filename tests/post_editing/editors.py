"""Small post-editors, triplet batches, and BERT encoder-decoders by the definition in plain torch."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from fairseq import models
from fairseq.data import Dictionary
from helpers import parse
from torch import Tensor
from torch.nn import functional

SYMBOLS = ("▁[SEP]", "<mask>", *(f"▁word{i}" for i in range(12)))
SMALL = (
    "--encoder-embed-dim 16 --encoder-ffn-embed-dim 24 --encoder-layers 2 --encoder-attention-heads 4 "
    "--dropout 0 --attention-dropout 0 --max-source-positions 20 --max-target-positions 12"
)
SOFTMAX = "--attention-normalizer softmax"
ARCH = "adaptively_sparse_post_editor"


def dictionary(symbols=SYMBOLS) -> Dictionary:
    words = Dictionary()
    for symbol in symbols:
        words.add_symbol(symbol)
    return words


def task(source: Dictionary | None = None, target: Dictionary | None = None) -> SimpleNamespace:
    return SimpleNamespace(
        source_dictionary=source or dictionary(), target_dictionary=target or source or dictionary()
    )


def build(flags: str = "", arch: str = ARCH, seed: int = 1, own_task=None):
    """A small float64 model, initialised from the seed."""
    args = parse(f"{SMALL} {flags}", arch)
    torch.manual_seed(seed)
    model = models.build_model(args, own_task or task()).double()
    for module in model.modules():
        if hasattr(module, "activation_fn"):
            module.activation_fn = functional.gelu  # fairseq's own rounds to float32
    return model


def batch(left_pad: bool = True) -> dict[str, Tensor]:
    """Three triplets of unequal lengths; the second has a source of one piece."""
    words, generator = dictionary(), torch.Generator().manual_seed(3)
    separator = words.index("▁[SEP]")

    def some(count: int) -> list[int]:
        return torch.randint(6, len(words), (count,), generator=generator).tolist()

    sources = [[*some(a), separator, *some(b), words.eos()] for a, b in ((4, 3), (1, 2), (3, 6))]
    targets = [[*some(count), words.eos()] for count in (3, 2, 5)]
    previous = [[words.eos(), *target[:-1]] for target in targets]
    return {
        "src_tokens": padded(sources, words.pad(), left_pad),
        "src_lengths": torch.tensor(list(map(len, sources))),
        "prev_output_tokens": padded(previous, words.pad(), False),
        "target": padded(targets, words.pad(), False),
    }


def padded(rows: list[list[int]], pad: int, left: bool) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor(
        [[pad] * (longest - len(row)) + row if left else row + [pad] * (longest - len(row)) for row in rows]
    )


def loss(model, sample: dict[str, Tensor]) -> Tensor:
    logits, _ = model(sample["src_tokens"], sample["src_lengths"], sample["prev_output_tokens"])
    return negative_log_likelihood(logits, sample["target"])


def negative_log_likelihood(logits: Tensor, target: Tensor) -> Tensor:
    pad = dictionary().pad()
    return functional.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=pad, reduction="sum")


# ---------------------------------------------------------------------------------------------- oracle


def oracle_logits(model, sample: dict[str, Tensor], heads: int = 4, drop: bool = False) -> Tensor:
    """The logits of softmax BERT as encoder and decoder, sentence by sentence without padding.

    Written from the paper; reads the model's parameters by name and calls none of its code.
    """
    p = dict(model.named_parameters(remove_duplicate=False))
    words, rows = dictionary(), []
    for source, previous in zip(sample["src_tokens"].tolist(), sample["prev_output_tokens"].tolist()):
        source = [token for token in source if token != words.pad()]
        previous = [token for token in previous if token != words.pad()]
        boundary = source.index(words.index("▁[SEP]"))
        places = [*range(boundary + 1), *range(len(source) - boundary - 1)]
        kinds = [0] * (boundary + 1) + [1] * (len(source) - boundary - 1)
        if drop:
            for sequence in (source, places, kinds):
                del sequence[boundary]
        x = _embedded(p, "encoder", source, places, kinds)
        for i in range(2):
            x = _sublayer(p, f"encoder.layers.{i}", "self_attn", x, x, heads)
            x = _feed_forward(p, f"encoder.layers.{i}", x)
        y = _embedded(p, "decoder", previous, [*range(len(previous))], [1] * len(previous))
        for i in range(2):
            y = _sublayer(p, f"decoder.layers.{i}", "self_attn", y, y, heads, causal=True)
            y = _sublayer(p, f"decoder.layers.{i}", "encoder_attn", y, x, heads)
            y = _feed_forward(p, f"decoder.layers.{i}", y)
        rows.append(y @ p["encoder.embed_tokens.weight"].T + p["decoder.output_projection.bias"])
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def _embedded(p, side: str, tokens: list[int], places: list[int], kinds: list[int]) -> Tensor:
    x = p["encoder.embed_tokens.weight"][tokens]
    x = x + p["encoder.input_positions.positions.weight"][places]
    x = x + p["encoder.input_positions.segments.weight"][kinds]
    return _norm(p, f"{side}.layernorm_embedding", x)


def _norm(p, name: str, x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return (
        centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-12).sqrt() * p[f"{name}.weight"]
        + p[f"{name}.bias"]
    )


def _linear(p, name: str, x: Tensor) -> Tensor:
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def _sublayer(p, layer: str, name: str, x: Tensor, keys: Tensor, heads: int, causal: bool = False) -> Tensor:
    q, k, v = (
        _linear(p, f"{layer}.{name}.{kind}_proj", inputs).unflatten(-1, (heads, -1)).transpose(0, 1)
        for kind, inputs in (("q", x), ("k", keys), ("v", keys))
    )
    scores = q @ k.transpose(1, 2) / q.size(-1) ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[1:]).triu(1).bool(), float("-inf"))
    mixed = (scores.softmax(-1) @ v).transpose(0, 1).flatten(1)
    return _norm(p, f"{layer}.{name}_layer_norm", x + _linear(p, f"{layer}.{name}.out_proj", mixed))


def _feed_forward(p, layer: str, x: Tensor) -> Tensor:
    hidden = _linear(p, f"{layer}.fc1", x)
    hidden = hidden * (1 + torch.erf(hidden / 2**0.5)) / 2  # GELU
    return _norm(p, f"{layer}.final_layer_norm", x + _linear(p, f"{layer}.fc2", hidden))
