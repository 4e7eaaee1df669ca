"""Measure the heads of a model over a split: their statistics, batch by batch, and attention maps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError
from ..files import write_json, write_text
from ..translation.translator import Hypothesis, Translator
from .capture import Split, captured_attention, dataset_of, output_norms, possible_pairs, run
from .maps import SIDES, SentenceMaps, sentence_maps, write_maps
from .report import write_report
from .results import (
    ModelAnalysis,
    head_table,
    heads_as_csv,
    log_beside,
    model_names,
    read_statistics,
    rounded,
)
from .roles import assign_roles, role_table
from .statistics import DEFINITIONS, STATISTICS, Attention, diversity, support
from .trajectories import read_trajectories
from .words import Pieces

BINS = 20
TRANSLATIONS = "own translations"
"""Name of the split of a model's own translations."""
HEAD_COLUMNS = {
    "alpha": "α of the head",
    "density": "share of the possible query-key pairs with a weight above 0, mean over sentences",
    "density_of_pairs": "the same share over the pairs of all sentences together, as in the authors' code",
    "density_std": "standard deviation of the density over sentences",
    "density_histogram": f"number of sentences by density, in {BINS} equal bins over [0, 1]",
    "output_norm": "L2 norm of the head's slice of the output projection",
}
"""The columns of heads that are not the mean of a measure; they come before :data:`STATISTICS`."""
LAYER_COLUMNS = {
    "diversity": "Jensen-Shannon divergence of the heads / log(heads), from 0 to 1, mean over queries",
    "union_density": "density of the union of the heads' supports, mean over sentences",
    "union_density_of_pairs": "the same share over the pairs of all sentences together",
    "sorted_densities": "densities of the heads, ascending",
}
COLUMNS = HEAD_COLUMNS | DEFINITIONS | LAYER_COLUMNS


class LayerStatistics:
    """Running statistics of the H heads of one attention module, in float64."""

    def __init__(self):
        self.sums: dict[str, Tensor] = {}  # by measure, (H,), over the items that have a value
        self.items: Counter[str] = Counter()  # by measure, the number of these items
        self.counts: list[Tensor] = []  # by batch, (B, H + 2), numbers of pairs per sentence: see ``add``

    def add(self, attention: Attention) -> None:
        """Add a batch."""
        measured = {name: measure(attention) for name, measure in STATISTICS.items()}
        measured["diversity"] = diversity(attention.weights)[:, None], attention.queries
        for name, (values, where) in [item for item in measured.items() if item[1] is not None]:
            self.sums[name] = self.sums.get(name, 0.0) + (values.double() * where[:, None]).sum((0, 2))
            self.items[name] += int(where.sum())
        attended, pairs = support(attention.weights, attention.possible)
        union, _ = support(attention.weights.amax(1, keepdim=True), attention.possible)
        self.counts.append(torch.cat([attended, union, pairs[:, None]], 1).cpu())  # (B, H + 2)

    def mean(self, name: str, head: int = 0) -> float | None:
        """The mean of a measure for one head, or None if no item has a value."""
        return float(self.sums[name][head]) / self.items[name] if self.items[name] else None

    def rows(self, alphas: Tensor, norms: Tensor) -> tuple[list[dict], dict]:
        """The columns of each head, given ``alphas`` and ``norms``, both (H,), and those of the layer."""
        counts, pairs = torch.cat(self.counts).T.split([self.counts[0].size(1) - 1, 1])  # (H + 1, N), (1, N)
        densities = counts.double() / pairs
        *means, union = densities.mean(1).tolist()
        *shares, union_share = (counts.sum(1).double() / pairs.sum()).tolist()
        bins = (counts * BINS // pairs).clamp(max=BINS - 1)  # integer arithmetic is exact
        heads = [
            {
                "alpha": float(alphas[head]),
                "density": mean,
                "density_of_pairs": shares[head],
                "density_std": float(densities[head].std(correction=0)),
                "density_histogram": torch.bincount(bins[head], minlength=BINS).tolist(),
                "output_norm": float(norms[head]),
                **{name: self.mean(name, head) for name in STATISTICS},
            }
            for head, mean in enumerate(means)
        ]
        return heads, {
            "diversity": self.mean("diversity") if len(heads) > 1 else None,
            "union_density": union,
            "union_density_of_pairs": union_share,
            "sorted_densities": sorted(means),
        }


class Statistics:
    """Running statistics of every head of a model; see :func:`head_statistics`."""

    def __init__(self, model, source: Pieces, target: Pieces, padding: int):
        self.model, self.source, self.target, self.padding = model, source, target, padding
        self.sentences = 0
        self.layers = {kind: [LayerStatistics() for _ in layers] for kind, layers in model.alphas().items()}

    def add(self, sample: dict, captured: dict[str, list[Tensor]]) -> None:
        """Add a batch and the attention that ``captured_attention`` recorded for it."""
        source = self.source.side(sample["net_input"]["src_tokens"])
        target = self.target.side(sample["net_input"]["prev_output_tokens"])
        tokens = {"source": source, "target_input": target}
        pairs = possible_pairs(sample, self.padding)
        self.sentences += len(sample["id"])
        for kind, layers in captured.items():
            (query, key), possible = SIDES[kind], pairs[kind]
            for running, weights in zip(self.layers[kind], layers):
                weights = weights.double().masked_fill(~possible[:, None], 0.0)
                weights /= weights.sum(-1, keepdim=True).clamp(min=1e-30)  # those of ReLA do not sum to 1
                running.add(Attention(weights, possible, tokens[query], tokens[key], query == key))

    def result(self) -> dict:
        """``{"sentences": N, "heads": [{…}, …], "layers": [{…}, …]}``; their columns are in :data:`COLUMNS`.

        Layers and heads count from 0; a measure that is not defined for a head is None.
        """
        heads, layers = [], []
        alphas, norms = self.model.alphas(), output_norms(self.model)
        for kind, of_kind in self.layers.items():
            for layer, running in enumerate(of_kind):
                place = {"attention": kind, "layer": layer}
                rows, of_layer = running.rows(alphas[kind][layer], norms[kind][layer])
                layers.append({**place, **of_layer})
                heads += [{**place, "head": head, **row} for head, row in enumerate(rows)]
        return {"sentences": self.sentences, "heads": heads, "layers": layers}


@torch.no_grad()
def head_statistics(split: Split, each_batch: Callable[[dict, dict], None] | None = None) -> dict:
    """All statistics of every head over a split: the result of :meth:`Statistics.result`.

    ``each_batch`` is called with each batch and its captured attention, in corpus order, for instance to
    write attention maps.
    """
    statistics = Statistics(split.model, *split.pieces(), split.padding)
    with captured_attention(split.model) as captured:
        for sample in split.samples(in_order=each_batch is not None):
            run(split.model, sample)
            statistics.add(sample, captured)
            if each_batch is not None:
                each_batch(sample, captured)
    return statistics.result()


def _measured(split: Split, texts: Sequence[str], **facts: str) -> tuple[dict, list[SentenceMaps]]:
    """The content of a file of statistics, including ``facts``, and the maps of the first sentences.

    ``texts``: the source sentences to return maps of, which are the first of the split.
    """
    about = {"corpus": split.corpus.name, "subset": split.name, "alphas": split.model.alpha_values()}
    maps: list[SentenceMaps] = []

    def keep(sample: dict, captured: dict) -> None:
        for row in sample["id"].argsort().tolist():
            if len(maps) < len(texts):
                maps.append(sentence_maps(split.task, sample, row, captured, text=texts[len(maps)], **about))

    statistics = head_statistics(split, keep if texts else None)
    report = {**split.facts, **facts, **statistics}
    report |= {"roles": assign_roles(report["heads"]), "measures": COLUMNS}
    return rounded(report), maps


def write_statistics(
    split: Split, output: Path, *, maps: Path | None = None, map_sentences: int = 50
) -> dict:
    """Write every statistic of every head to ``output`` as JSON, whose content is returned, and as CSV.

    The attention maps of the first ``map_sentences`` are written to the folder ``maps``, if any.
    """
    texts: list[str] = []
    if maps is not None:
        read = split.direction[0 if split.model.attentions()["encoder_self"] else 1]
        source = split.corpus.text(split.subset, read)
        texts = source.read_text(encoding="utf-8").split("\n")[:map_sentences]
        if split.subset == "train":  # some of its lines are in no batch, so the map shows the pieces instead
            texts = [""] * map_sentences
    report, sentences = _measured(split, texts)
    if maps is not None:
        write_maps(maps, sentences)
    write_json(output, report)
    write_text(output.with_suffix(".csv"), heads_as_csv(report["heads"]))
    return report


def report_translations(
    translator: Translator,
    checkpoints: Sequence[Path],
    translated: Sequence[tuple[str, np.ndarray, Hypothesis]],
    path: Path,
) -> None:
    """Write the head report of a translator's models, measured while they read the translations.

    ``translated`` has sentences, their tokens (S,), ``</s>`` last, and their best hypotheses; α over training
    is read from ``alpha.jsonl`` beside each of the ``checkpoints``. Raises UserError without sentences.
    """
    if not translated:
        raise UserError("there are no sentences to report on: all lines are empty")
    texts, sources, best = zip(*translated)
    targets, task, models = [hypothesis.tokens for hypothesis in best], translator.task, []
    task.datasets[TRANSLATIONS] = dataset_of(task, sources, targets)
    max_tokens = max(4096, *map(len, [*sources, *targets]))
    for checkpoint, name, model in zip(checkpoints, model_names(checkpoints), translator.models):
        named = checkpoint, translator.corpus, TRANSLATIONS, TRANSLATIONS
        split = Split(*named, model, task, max_tokens=max_tokens)
        statistics, maps = _measured(split, texts, target="translation")
        log = log_beside(checkpoint)
        models.append(ModelAnalysis(name, statistics, log and read_trajectories(log), maps))
    write_report(models, path, len(texts))


def statistics_summary(report: dict, output: Path, maps: Path | None) -> str:
    """Tables of the heads and their roles, and the files that :func:`write_statistics` wrote."""
    lines = [head_table(report["heads"]), role_table(report["roles"]), ""]
    if maps:
        lines.append(f"attention maps of {len(list(maps.glob('*.npz')))} sentences: {maps}")
    table = output.with_suffix(".csv").name
    lines.append(f"statistics over {report['sentences']} sentences: {output} and {table}")
    return "\n".join(lines)


def statistics_are_current(statistics: Path, maps: Path, checkpoint: Path, corpus: str, shown: int) -> bool:
    """Whether statistics and ``maps`` of ``shown`` sentences of a corpus exist, as new as the checkpoint."""
    files = [statistics, *maps.glob("*.npz")]
    if not statistics.is_file() or min(file.stat().st_mtime for file in files) < checkpoint.stat().st_mtime:
        return False
    content = read_statistics(statistics)
    return content.get("corpus") == corpus and len(files) > min(shown, content["sentences"])
