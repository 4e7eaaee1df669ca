"""A vocabulary of pieces, sentences, and random attention on them, as input of the measures."""

from __future__ import annotations

import numpy as np
import torch
from fairseq.data import Dictionary
from fairseq.data.data_utils import collate_tokens
from head_oracle import SIDES

PIECES = "▁the ▁wa s ▁who ▁Wh ere ▁ ic ed . ? , ▁la ke ▁( ) ' ▁lake"

PAIRS = [
    ("▁the ▁wa s ▁( ▁la ke ) .", "▁who ▁ ic ed ▁the ▁lake"),
    ("▁Wh ere ▁wa s ▁the ▁la ke ?", "▁Wh ere ▁wa s ▁the ▁lake ? ▁who"),
    ("▁lake", "?"),  # one word
    ("", "▁the"),  # only </s>
    ("▁who ▁who ed , ▁who ' s ▁lake ?", ""),
    ("▁Wh ere ▁ ? ▁ ic ed ▁the ▁wa s .", "▁lake . ▁Wh ere"),  # marks before and within
    ("▁the ▁who ▁la ke", "▁Wh ere ,"),  # the last word is split
    ("▁Wh ere ▁the ▁lake .", "▁the ▁la ke ?"),
]


def dictionary() -> Dictionary:
    words = Dictionary()
    for piece in PIECES.split():
        words.add_symbol(piece)
    return words


def numbered(words: Dictionary, text: str) -> torch.Tensor:
    return torch.tensor([words.index(piece) for piece in text.split()] + [words.eos()])


def as_batch(words: Dictionary, pairs: list[tuple[str, str]], left_pad_source: bool) -> dict:
    """Batch sentence pairs as fairseq does; the target is padded on the other side too, if requested."""
    source = [numbered(words, pair[0]) for pair in pairs]
    target = [numbered(words, pair[1]) for pair in pairs]
    inputs = [tokens.roll(1) for tokens in target]
    right = {"pad_idx": words.pad(), "left_pad": False}
    return {
        "id": torch.arange(len(pairs)),
        "net_input": {
            "src_tokens": collate_tokens(source, words.pad(), left_pad=left_pad_source),
            "src_lengths": torch.tensor([len(tokens) for tokens in source]),
            "prev_output_tokens": collate_tokens(inputs, **right),
        },
        "target": collate_tokens(target, **right),
    }


def random_attention(words: Dictionary, sample: dict, layers: int, heads: int, dtype=torch.float64) -> dict:
    """Weights (B, H, T, S) by type and layer, about half of them 0; padding rows have arbitrary values."""
    sides = {
        "source": sample["net_input"]["src_tokens"] != words.pad(),
        "target_input": sample["net_input"]["prev_output_tokens"] != words.pad(),
    }
    captured = {}
    for name, (query, key) in SIDES.items():
        queries, keys = sides[query], sides[key]
        pairs = keys[:, None, None, :].expand(-1, heads, queries.size(1), -1).clone()
        if name == "decoder_self":
            pairs = pairs.tril()
        captured[name] = []
        for _ in range(layers):
            raw = torch.rand(pairs.shape, dtype=dtype).sub(0.5).clamp(min=0) * pairs
            # If a query has no key by chance, give it the first possible one.
            first = pairs & (pairs.cumsum(-1) == 1)
            raw = torch.where((raw.sum(-1, keepdim=True) == 0) & first, 1.0, raw)
            captured[name].append(raw / raw.sum(-1, keepdim=True).clamp(min=1e-9))
    return captured


def without_padding(words: Dictionary, sample: dict, captured: dict) -> list[dict]:
    """The sentences of a batch as separate dicts for the oracle."""
    sentences = []
    for row in range(len(sample["id"])):
        inputs = {"source": "src_tokens", "target_input": "prev_output_tokens"}
        tokens = {side: sample["net_input"][name][row] for side, name in inputs.items()}
        places = {side: (ids != words.pad()).nonzero()[:, 0].tolist() for side, ids in tokens.items()}
        sentence = {side: [words[tokens[side][i]] for i in where] for side, where in places.items()}
        sentence["weights"] = {}
        for name, (query, key) in SIDES.items():
            stacked = np.stack([layer[row].numpy() for layer in captured[name]])
            sentence["weights"][name] = stacked[:, :, places[query]][:, :, :, places[key]]
        sentences.append(sentence)
    return sentences
