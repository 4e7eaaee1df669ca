"""Analysis of a checkpoint in three calls: statistics, figures and report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from .result_files import ModelAnalysis, check_same_split, log_beside, read_results, result_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..corpora import Corpus

# What takes seconds to import is imported by the functions that need it.


def analyse(
    checkpoint: str | Path,
    corpus: Corpus | str | None = None,
    subset: str = "valid",
    *,
    name: str | None = None,
    data: Path | None = None,
    sentences: int | None = None,
    map_sentences: int = 50,
    output: str | Path | None = None,
    attribution: bool = False,
    cpu: bool = False,
) -> ModelAnalysis:
    """Run a model over a split, with teacher forcing, and measure what each of its heads attends to.

    Writes the same files as ``head_stats.py``: ``NAME.SUBSET.heads.json``, the same as CSV, and the attention
    maps of the first sentences, ``NAME.SUBSET.attention.npz``. Reads ``alpha.jsonl`` next to the checkpoint.

    Args:
        checkpoint: of our model, or of fairseq's stock transformer (α = 1 in all heads).
        corpus: a prepared corpus or its name; None for the one that the checkpoint names.
        subset: the split: ``valid``, ``train`` or a test set's name.
        name: name of the model in figures and reports; None for its folder and file name.
        data: folder of the corpora; None for the repository's.
        sentences: only the first N sentences of the split; None for all.
        map_sentences: store the attention maps of the first N sentences.
        output: folder for the results; None for the checkpoint's.
        attribution: also compute :mod:`~.attribution` of the sentences of the maps, which the report shows.
        cpu: use the CPU even if there is a GPU.

    Returns:
        ``statistics["heads"]`` has a row for each attention type, layer and head, ``statistics["measures"]``
        the definition of each column; ``trajectories`` is None without an α log.

    Raises:
        UserError: the checkpoint, corpus or split is missing or corrupt, or they do not match.
    """
    from ..checkpoints import load_checkpoint
    from ..translation.direction import corpus_of
    from .attribution import with_attribution
    from .results import write_statistics
    from .split import open_split

    checkpoint = Path(checkpoint)
    if corpus is None:
        corpus = corpus_of(load_checkpoint(checkpoint), checkpoint, data=data)
    split = open_split(checkpoint, corpus, subset, data=data, sentences=sentences, cpu=cpu)
    beside = checkpoint if output is None else Path(output) / checkpoint.name
    statistics, maps = (result_file(beside, split.name, end) for end in ("heads.json", "attention.npz"))
    write_statistics(split, statistics, maps=maps, map_sentences=map_sentences)
    name = name or f"{checkpoint.absolute().parent.name}/{checkpoint.stem}"
    analysis = read_results(name, statistics, log_beside(checkpoint), maps)
    return with_attribution(analysis, split, map_sentences) if attribution else analysis


def figures(models: Iterable[ModelAnalysis], width: float | None = None) -> dict[str, Figure]:
    """Draw figures of the heads, including those of the paper, with models of one split side by side.

    Each has the ``width`` in inches, or that of its panels.

    Returns:
        ``alpha_histograms``, ``density_histograms``, ``sorted_densities``, ``diversity`` and, for each model
        with an α log, ``alpha_trajectories``, with the model's index if there are several.

    Raises:
        UserError: the models are of different splits, or two have the same name.
    """
    from . import plots

    models = list(models)
    names = [model.name for model in models]
    if len(set(names)) < len(names):
        raise UserError(f"of the models {', '.join(names)}, two have one name; give analyse another")
    check_same_split([replace(model, maps=None) for model in models])
    statistics = {model.name: model.statistics for model in models}
    alphas = {name: plots.alphas_of_heads(each) for name, each in statistics.items()}
    drawn = {"alpha_histograms": plots.alpha_histograms(alphas, width)}
    for draw in (plots.density_histograms, plots.sorted_densities, plots.diversity):
        drawn[draw.__name__] = draw(statistics, width)
    for number, model in enumerate(models):
        if model.trajectories is not None:
            suffix = f"_{number}" if len(models) > 1 else ""
            drawn[f"alpha_trajectories{suffix}"] = plots.alpha_trajectories(model.trajectories, width)
    return drawn


def head_map(model: ModelAnalysis, head: tuple[str, int, int], sentence: int = 0) -> Figure:
    """Draw what one head attends to in one sentence: a row for each query, a column for each key.

    Args:
        model: with attention maps.
        head: attention type, layer and head, both counted from 0: ``("encoder_self", 2, 0)``.
        sentence: its index in the split, from 0.

    Raises:
        UserError: the model has no maps, or the head or the sentence does not exist.
    """
    from .plots_maps import head_maps, panel

    if model.maps is None:
        raise UserError(f"{model.name} was read without attention maps; draw what analyse returns")
    return head_maps([panel(model.maps[sentence], model.maps.alphas, head)])
