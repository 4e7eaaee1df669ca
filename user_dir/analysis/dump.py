"""Splits batches of captured attention into the maps of single sentences."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from .maps import SentenceMaps
from .maps_writer import MapsWriter


class MapsDump:
    """Writes the maps of the first sentences of a split while its batches are processed in corpus order.

    Args:
        writer: destination.
        task: fairseq's task, for its dictionaries.
        sentences: number of sentences, from the first.
        texts: their source sentences before segmentation.
    """

    def __init__(self, writer: MapsWriter, task, sentences: int, texts: list[str]):
        self._writer, self._task, self._sentences, self._texts = writer, task, sentences, texts

    def __call__(self, sample: dict, captured: dict[str, list[Tensor]]) -> None:
        """Write the sentences of a batch; batches must come in corpus order."""
        for number, maps in sorted(sentence_maps(self._task, sample, captured, self._sentences)):
            maps = SentenceMaps(**{**vars(maps), "text": self._texts[number]})
            self._writer.write(maps)


def sentence_maps(
    task, sample: dict, captured: dict[str, list[Tensor]], below: int
) -> Iterator[tuple[int, SentenceMaps]]:
    """Index and unpadded maps of each sentence of a batch whose index is less than ``below``."""
    inputs = {"source": sample["net_input"]["src_tokens"], "target_input": None, "target": sample["target"]}
    inputs["target_input"] = sample["net_input"]["prev_output_tokens"]
    for row, number in enumerate(sample["id"].tolist()):
        if number >= below:
            continue
        kept = {name: tokens[row] != task.source_dictionary.pad() for name, tokens in inputs.items()}
        tokens = {
            name: [dictionary[i] for i in inputs[name][row][kept[name]].tolist()]
            for name, dictionary in (
                ("source", task.source_dictionary),
                ("target_input", task.target_dictionary),
                ("target", task.target_dictionary),
            )
        }
        sides = {
            "encoder_self": ("source", "source"),
            "decoder_self": ("target_input", "target_input"),
            "decoder_context": ("target_input", "source"),
        }
        weights = {
            attention_type: torch.stack(
                [
                    layer[row][:, kept[sides[attention_type][0]]][:, :, kept[sides[attention_type][1]]]
                    for layer in layers
                ]
            )
            .cpu()
            .numpy()
            for attention_type, layers in captured.items()
            if layers
        }
        yield number, SentenceMaps(weights=weights, **tokens)
