"""Measure the heads of a model over a split: statistics, streamed in constant memory, and attention maps."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..corpora import Corpus
from ..errors import UserError
from ..files import write_json, write_text
from . import measures
from .capture import Split, captured_attention, dataset_of, output_norms, possible_pairs, row_sums, run
from .maps import SIDES, Maps, remove_maps, sentence_maps, write_map
from .results import ModelAnalysis, head_table, heads_as_csv, log_beside, read_statistics, rounded
from .roles import ROLES, Role, assign_roles, role_table, with_thresholds
from .statistics import STATISTICS, Attention
from .trajectories import read_trajectories
from .words import Pieces, known_interrogatives

BINS = 20
TRANSLATIONS = "own translations"
"""Name of the split of a model's own translations; splits of a corpus cannot have this name."""
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
    """Running statistics of the H heads of one attention module."""

    def __init__(self, num_heads: int):
        self.num_heads = num_heads
        self.sentences = self.pairs = 0
        self.means = {name: Mean() for name in STATISTICS}
        self.diversity = Mean()
        self.histogram = torch.zeros(num_heads, BINS, dtype=torch.long)
        # Sums over sentences of the heads' densities, of their squares, and of the density of the union.
        self.density = self.density_squared = self.union = 0.0
        self.attended = self.attended_by_any = 0  # pairs in the support of each head, and in the union

    def add(self, attention: Attention) -> None:
        """Add a batch."""
        for name, mean in self.means.items():
            values = STATISTICS[name].measure(attention)
            if values is not None:
                mean.add(*values)
        self.diversity.add(measures.diversity(attention.weights)[:, None], attention.queries)
        attended, pairs = measures.support(attention.weights, attention.possible)
        density = attended.double() / pairs[:, None]
        self.sentences += len(density)
        self.density = self.density + density.sum(0)
        self.density_squared = self.density_squared + density.pow(2).sum(0)
        bins = (attended * BINS // pairs[:, None]).clamp(max=BINS - 1).cpu()  # integer arithmetic is exact
        for head in range(self.num_heads):
            self.histogram[head] += torch.bincount(bins[:, head], minlength=BINS)
        self.attended = self.attended + attended.sum(0)
        self.pairs += int(pairs.sum())
        attended, pairs = measures.support(attention.weights.amax(1, keepdim=True), attention.possible)
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
            attention_type: [LayerStatistics(len(alphas)) for alphas in layers]
            for attention_type, layers in model.alphas().items()
        }

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
                running.add(Attention(weights, possible, tokens[query], tokens[key], query == key))

    def result(self) -> dict:
        """``{"sentences": N, "heads": [{…}, …], "layers": [{…}, …], "measures": {column: definition}}``.

        Layers and heads count from 0; a measure that is not defined for a head is None.
        """
        heads, rows = [], []
        alphas, norms = self.model.alphas(), output_norms(self.model)
        layers = [running for layers in self.layers.values() for running in layers]
        columns = dict(HEAD_COLUMNS)
        for name, column in STATISTICS.items():
            if not column.optional or any(running.means[name].count for running in layers):
                columns[name] = column.definition
        for kind, layers in self.layers.items():
            for layer, running in enumerate(layers):
                place = {"attention": kind, "layer": layer}
                rows.append({**place, **running.layer()})
                for head in range(running.num_heads):
                    row = running.head(head)
                    row["alpha"] = float(alphas[kind][layer][head])
                    row["output_norm"] = float(norms[kind][layer][head])
                    heads.append({**place, "head": head, **{name: row[name] for name in columns}})
        definitions = {**columns, **LAYER_COLUMNS}
        return {"sentences": self.sentences, "heads": heads, "layers": rows, "measures": definitions}


@torch.no_grad()
def head_statistics(
    model, samples: Iterable[dict], source: Pieces, target: Pieces, padding: int, each_batch=None
) -> dict:
    """All statistics of every head of ``model`` over batches in fairseq's form.

    ``source`` and ``target`` are the pieces of the languages, and ``padding`` is the symbol of both.
    ``each_batch`` is called with each batch and its captured attention, for instance to write attention maps.
    The result is that of :meth:`Statistics.result`.
    """
    statistics = Statistics(model, source, target, padding)
    with captured_attention(model) as captured:
        for sample in samples:
            run(model, sample)
            statistics.add(sample, captured)
            if each_batch is not None:
                each_batch(sample, captured)
    return statistics.result()


def _measured(
    split: Split,
    pieces: tuple[Pieces, Pieces],
    roles: dict[str, Role],
    facts: dict,
    maps: Path | None,
    texts: Sequence[str],
) -> dict:
    """The content of a file of statistics, which says ``facts``, too; writes ``maps`` if it is given.

    ``texts``: the source sentences, from the first, of which maps are written.
    """
    about = {"corpus": split.corpus.name, "subset": split.name, "alphas": split.model.alpha_values()}

    def write(sample: dict, captured: dict) -> None:
        for row, number in enumerate(sample["id"].tolist()):
            if number < len(texts):
                write_map(
                    maps, number, sentence_maps(split.task, sample, row, captured, texts[number], **about)
                )

    if maps is not None:
        remove_maps(maps)
    samples = split.samples(in_order=maps is not None)
    each_batch = write if maps is not None else None
    statistics = head_statistics(split.model, samples, *pieces, split.padding, each_batch)
    definitions = statistics.pop("measures")
    report = {**split.facts, **facts, "row_sums": row_sums(split.model), **statistics}
    report["roles"] = assign_roles(report["heads"], roles)
    report["measures"] = definitions
    return rounded(report)


def write_statistics(
    split: Split,
    output: Path,
    *,
    scheme: str | None = None,
    interrogatives: Mapping[str, frozenset[str]] | None = None,
    thresholds: Sequence[str] = (),
    maps: Path | None = None,
    map_sentences: int = 50,
) -> dict:
    """Write every statistic of every head as JSON, and the rows of the heads as CSV beside it.

    Args:
        split: a model over a split, with teacher forcing.
        output: the JSON file, whose content is returned.
        scheme: how pieces form words, one of :data:`~.words.SCHEMES`; None detects it.
        interrogatives: by language, words that replace our list.
        thresholds: ``ROLE=VALUE``, see :func:`~.roles.with_thresholds`.
        maps: also write attention maps to this folder.
        map_sentences: the number of sentences in it, from the first.
    """
    roles, pieces, texts = with_thresholds(thresholds), split.pieces(scheme, interrogatives), []
    if maps is not None:
        source = split.corpus.text(split.subset, split.direction[0])
        texts = source.read_text(encoding="utf-8").split("\n")[:map_sentences]
    report = _measured(split, pieces, roles, {"bpe": pieces[0].scheme}, maps, texts)
    write_json(output, report)
    write_text(output.with_suffix(".csv"), heads_as_csv(report["heads"]))
    return report


def analyse_translations(
    name: str,
    checkpoint: Path,
    corpus: Corpus,
    model,
    task,
    sources: Sequence[np.ndarray],
    targets: Sequence[np.ndarray],
    texts: Sequence[str],
    maps: Path,
) -> ModelAnalysis:
    """Statistics and attention maps of a model while the decoder reads the given translations.

    Args:
        name: name of the model in the report.
        checkpoint: of the model; α over training is read from ``alpha.jsonl`` next to it.
        corpus: the corpus whose vocabulary the model has.
        model: from :func:`~.capture.load_model`.
        task: the model's task.
        sources: (S,) tokens of each sentence, ``</s>`` last.
        targets: (T,) tokens of each translation, ``</s>`` last.
        texts: the sentences as text.
        maps: the folder to write maps to, which the report reads.

    Raises:
        UserError: there are no sentences, or one is longer than the model's limit.
    """
    if not sources:
        raise UserError("there are no sentences to report on: all lines are empty")
    task.datasets[TRANSLATIONS] = dataset_of(task, sources, targets)
    longest = max(map(len, [*sources, *targets]))
    split = Split(checkpoint, corpus, TRANSLATIONS, TRANSLATIONS, model, task, max_tokens=max(4096, longest))
    statistics = _measured(split, split.pieces(), ROLES, {"target": "translation"}, maps, texts)
    log = log_beside(checkpoint)
    return ModelAnalysis(name, statistics, read_trajectories(log) if log else None, Maps(maps))


def statistics_summary(
    report: dict, output: Path, maps: Path | None, interrogatives: Collection[str] = ()
) -> str:
    """Tables of the heads and their roles, and the files that :func:`write_statistics` wrote.

    ``interrogatives``: languages for which the user gave interrogative words.
    """
    lines = [head_table(report["heads"]), role_table(report["roles"])]
    for language in (report["source_lang"], report["target_lang"]):
        if language not in interrogatives and known_interrogatives(language) is None:
            lines.append(
                f"no list of interrogative words for {language!r}: give --interrogatives {language}=FILE"
            )
    lines.append("")
    if maps:
        lines.append(f"attention maps of {len(Maps(maps))} sentences: {maps}")
    table = output.with_suffix(".csv").name
    lines.append(f"statistics over {report['sentences']} sentences: {output} and {table}")
    return "\n".join(lines)


def statistics_are_current(
    statistics: Path, maps: Path | None, checkpoint: Path, corpus: Corpus, subset: str, shown: int
) -> bool:
    """Whether files are what a report needs that shows ``shown`` sentences, and no older than the checkpoint.

    It needs statistics of the whole split, and ``maps``, if any, of the first ``shown`` of its sentences.
    """
    files = [statistics, *(maps.glob("*.npz") if maps else [])]
    if not statistics.is_file() or min(each.stat().st_mtime for each in files) < checkpoint.stat().st_mtime:
        return False
    report = read_statistics(statistics)
    sentences = corpus.text(subset, corpus.languages[0]).read_bytes().count(b"\n")
    enough = report["sentences"] == sentences and (maps is None or len(files) > min(shown, sentences))
    return enough and (report["corpus"], report["subset"]) == (corpus.name, subset)
