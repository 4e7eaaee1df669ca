"""Statistics of the heads, streamed over a split in constant memory."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from . import measures
from .capture import captured_attention, output_norms, possible_pairs, run
from .columns import BINS, COLUMNS, PART_COLUMNS
from .maps import SIDES
from .words import Pieces, Side


class Mean:
    """Running mean per head over the items for which a measure is defined, in float64."""

    def __init__(self):
        self.total: Tensor | float = 0.0
        self.count = 0

    def add(self, values: Tensor, where: Tensor) -> None:
        """Add values (B, H, N) where ``where`` (B, N) is true."""
        self.total = self.total + (values.double() * where[:, None]).sum((0, 2))
        self.count += int(where.sum())

    def of(self, head: int) -> float | None:
        """The mean of one head, or None if nothing was added."""
        return float(self.total[head]) / self.count if self.count else None


class LayerStatistics:
    """Running statistics of the H heads of one attention module.

    ``within``: queries and keys are the same tokens (self-attention); subword merging requires it.
    """

    def __init__(self, num_heads: int, within: bool):
        self.num_heads = num_heads
        self.within = within
        self.sentences = 0
        self.histogram = torch.zeros(num_heads, BINS, dtype=torch.long)
        # Sums over sentences of densities, (H,), of their squares, and of the density of the union.
        self.density = self.density_squared = self.union = 0.0
        # Pairs in each head's support, (H,), in the union of the supports, and possible ones.
        self.attended = self.attended_by_any = self.pairs = 0
        self.diversity = Mean()
        names = [name for name in COLUMNS if name != "alpha" and "density" not in name]
        self.means = {name: Mean() for name in names if name != "output_norm"}
        self.parts = {name: Mean() for name in PART_COLUMNS}

    def add(self, weights: Tensor, possible: Tensor, query: Side, key: Side) -> None:
        """Add a batch: weights (B, H, T, S), mask of possible pairs (B, T, S), properties of its tokens."""
        weights = weights.double().masked_fill(~possible[:, None], 0.0)
        queries = possible.any(-1)  # (B, T)
        self._add_density(weights, possible)
        self.diversity.add(measures.diversity(weights)[:, None], queries)
        self.means["entropy"].add(measures.entropy(weights), queries)
        for name, offset in (("previous", -1), ("current", 0), ("next", 1)):
            at = measures.weight_at_offset(weights, query.position, key.position, possible, offset)
            self.means[f"confidence_{name}"].add(*at)
        self.means["eos"].add(measures.mass(weights, key.eos), queries)
        self.means["punctuation"].add(measures.mass(weights, key.punctuation), queries)
        if key.part is not None:
            parted = queries & key.part.ge(0).any(1, keepdim=True)
            for part, mean in enumerate(self.parts.values()):
                mean.add(measures.mass(weights, key.part == part), parted)
        if self.within:
            merging, pieces = measures.subword_merging(weights, query.word)
            self.means["subword_merging"].add(merging, pieces > 0)
            self.means["subword_merging_split"].add(merging, pieces > 1)
            self.means["subword_merging_confidence"].add(*measures.mass_in_word(weights, query.word))
        if query.interrogative is not None:
            ends = {"interrogation": key.question, "interrogation_declarative": key.final_stop}
            for name, keys in ends.items():
                seen = query.interrogative & (possible & keys[:, None, :]).any(-1)
                self.means[name].add(measures.mass(weights, keys), seen)

    def _add_density(self, weights: Tensor, possible: Tensor) -> None:
        attended, pairs = measures.support(weights, possible)
        density = attended.double() / pairs[:, None]
        self.sentences += weights.size(0)
        self.density = self.density + density.sum(0)
        self.density_squared = self.density_squared + density.pow(2).sum(0)
        bins = (attended * BINS // pairs[:, None]).clamp(max=BINS - 1).cpu()  # integer arithmetic is exact
        for head in range(self.num_heads):
            self.histogram[head] += torch.bincount(bins[:, head], minlength=BINS)
        self.attended = self.attended + attended.sum(0)
        self.pairs += int(pairs.sum())
        attended, pairs = measures.support(weights.amax(1, keepdim=True), possible)
        self.union += float((attended[:, 0].double() / pairs).sum())
        self.attended_by_any += int(attended.sum())

    def head(self, head: int) -> dict:
        """The columns of one head that are computed from its weights."""
        mean = float(self.density[head]) / self.sentences
        variance = float(self.density_squared[head]) / self.sentences - mean**2
        return {
            "density": mean,
            "density_of_pairs": int(self.attended[head]) / self.pairs,
            "density_std": max(variance, 0.0) ** 0.5,
            "density_histogram": self.histogram[head].tolist(),
            **{name: values.of(head) for name, values in self.means.items()},
            **{name: values.of(head) for name, values in self.parts.items() if values.count},
        }

    def layer(self) -> dict:
        """The columns of the layer; diversity is None if there is a single head."""
        return {
            "diversity": self.diversity.of(0) if self.num_heads > 1 else None,
            "union_density": self.union / self.sentences,
            "union_density_of_pairs": self.attended_by_any / self.pairs,
            "sorted_densities": sorted(float(total) / self.sentences for total in self.density),
        }


class Statistics:
    """Running statistics of every head of a model; see :func:`head_statistics`."""

    def __init__(self, model, source: Pieces, target: Pieces, padding: int):
        self.model, self.source, self.target, self.padding = model, source, target, padding
        self.sentences = 0
        self.layers = {
            attention_type: [
                LayerStatistics(len(alphas), attention_type != "decoder_context") for alphas in layers
            ]
            for attention_type, layers in model.alphas().items()
        }

    def add(self, sample: dict, captured: dict[str, list[Tensor]]) -> None:
        """Add a batch and the attention that ``captured_attention`` recorded for it."""
        source = self.source.side(sample["net_input"]["src_tokens"])
        target = self.target.side(sample["net_input"]["prev_output_tokens"])
        tokens = {"source": source, "target_input": target}
        pairs = possible_pairs(sample, self.padding)
        self.sentences += len(sample["id"])
        for attention_type, layers in captured.items():
            query, key = (tokens[side] for side in SIDES[attention_type])
            for running, weights in zip(self.layers[attention_type], layers):
                running.add(weights, pairs[attention_type], query, key)

    def result(self) -> dict:
        """``{"sentences": N, "heads": [{…}, …], "layers": [{…}, …]}``: see COLUMNS and LAYER_COLUMNS.

        For a post-editor also PART_COLUMNS. Layers and heads count from 0; a measure that is not defined for
        a head is None.
        """
        heads, rows = [], []
        alphas, norms = self.model.alphas(), output_norms(self.model)
        parted = any(each.parts["on_source"].count for layers in self.layers.values() for each in layers)
        names = [*COLUMNS, *(PART_COLUMNS if parted else ())]
        for kind, layers in self.layers.items():
            for layer, running in enumerate(layers):
                place = {"attention": kind, "layer": layer}
                rows.append({**place, **running.layer()})
                for head in range(running.num_heads):
                    row = running.head(head)
                    row["alpha"] = float(alphas[kind][layer][head])
                    row["output_norm"] = float(norms[kind][layer][head])
                    heads.append({**place, "head": head, **{name: row.get(name) for name in names}})
        return {"sentences": self.sentences, "heads": heads, "layers": rows}


@torch.no_grad()
def head_statistics(
    model, samples: Iterable[dict], source: Pieces, target: Pieces, padding: int, each=None
) -> dict:
    """All statistics of every head of ``model`` over batches in fairseq's form.

    ``source`` and ``target`` are the pieces of the languages, and ``padding`` is the symbol of both. ``each``
    is called with each batch and its captured attention, for instance to write attention maps. The result is
    that of :meth:`Statistics.result`.
    """
    statistics = Statistics(model, source, target, padding)
    with captured_attention(model) as captured:
        for sample in samples:
            run(model, sample)
            statistics.add(sample, captured)
            if each is not None:
                each(sample, captured)
    return statistics.result()
