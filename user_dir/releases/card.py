"""The model card of a release: ``card.md``, with what the checkpoint and its corpus say."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from string import Template

import yaml

from ..checkpoints import averaged_updates, model_name, model_settings, num_updates
from ..corpora import Corpus
from ..corpora.segment import vocabulary
from .archive import CHECKPOINT
from .scores import METRICS
from .training_config import training_config

_PACKAGES = ("torch", "fairseq-fixed", "fairseq", "numpy", "sacrebleu", "sacremoses", "sentencepiece")
_CITATION = (
    "Gonçalo M. Correia, Vlad Niculae, André F. T. Martins, 2019: [Adaptively Sparse Transformers]"
    "(https://aclanthology.org/D19-1223/)"
)


def model_card(
    state: dict,
    corpus: Corpus,
    direction: tuple[str, str],
    parameters: int,
    scores: list[dict],
    wheel: str,
    eight_bits: bool = False,
) -> str:
    """The card of a model.

    Args:
        state: from :func:`~user_dir.checkpoints.for_inference`.
        corpus: the prepared corpus that it was trained on.
        direction: source and target language.
        parameters: number of parameters of the model.
        scores: from :func:`~.scores.read_scores`.
        wheel: file name of the package's wheel.
        eight_bits: the archive has the matrices in 8 bits.
    """
    described, triplets = corpus.description, corpus.description.triplets
    ours = model_name(state).startswith("adaptively_sparse")
    values = {
        "name": corpus.name,
        "source": direction[0],
        "target": direction[1],
        "package": f" of the package adaptively-sparse ({_CITATION})" if ours else "",
        "task": "corrects machine translations" if triplets else "translates sentences",
        "model": _model(state, corpus, direction, parameters, eight_bits),
        "lines": "A line is a source sentence, a tab and its machine translation"
        if triplets
        else "Text goes in and comes out one sentence a line",
        "tokens": ", in tokens separated by spaces, as in the corpus" if described.tokenised else "",
        "wheel": wheel,
        "scores": _scores(scores, corpus),
        "raw": "" if described.downloads else " --raw FOLDER_OF_ITS_TEXT",
        "settings": yaml.safe_dump(training_config(state), allow_unicode=True).rstrip(),
        "data": _table(
            [
                ("", ""),
                ("corpus", f"{corpus.name}: {described.title}"),
                ("licence", described.licence or "not stated in its description"),
                ("citation", described.citation or "not stated in its description"),
            ]
        ),
        "versions": _versions(wheel.split("-")[1]),
    }
    template = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
    return Template(template).substitute(values)


def _model(state: dict, corpus: Corpus, direction: tuple[str, str], parameters: int, eight_bits: bool) -> str:
    settings = model_settings(state)
    processes = state["cfg"]["distributed_training"]["distributed_world_size"]
    kind = "WordPiece" if corpus.description.wordpiece else "sentencepiece"
    rows = {
        "languages": f"{direction[0]} → {direction[1]}",
        "architecture": f"`{model_name(state)}`",
        "attention": f"`{settings['attention_normalizer']}`" if "attention_normalizer" in settings else None,
        "parameters": f"{parameters:,}",
        "stored as": "8-bit integers times a number for each row; computed with in float32"
        if eight_bits
        else None,
        "vocabulary": f"{len(vocabulary(corpus.pieces)):,} pieces of {kind}",
        "trained on": f"{corpus.name}: {corpus.description.title}",
        "updates": f"{num_updates(state):,}",
        "average of the updates": ", ".join(f"{each:,}" for each in averaged_updates(state) or ()),
        "processes in training": None if processes == 1 else str(processes),
    }
    return _table([("", ""), *((key, value) for key, value in rows.items() if value)])


def _scores(scores: list[dict], corpus: Corpus) -> str:
    if not scores:
        return (
            "The model was not scored before it was released. `python scripts/evaluate.py --path CHECKPOINT "
            f"--corpus {corpus.name}` scores its checkpoint; a release built later lists the scores here."
        )
    rows = [("test set", "sentences", "beam", "length penalty", "BLEU", "chrF", "TER")]
    for each in scores:
        settings = str(each["sentences"]), str(each["beam"]), f"{each['length_penalty']:g}"
        rows.append((each["test_set"], *settings, *(f"{each[name]:.2f}" for name in METRICS)))
        if "uncorrected" in each:
            unchanged = (f"{each['uncorrected'][name]:.2f}" for name in METRICS)
            rows.append((f"{each['test_set']}, uncorrected", settings[0], "", "", *unchanged))
    notes = [note for each in scores for note in _notes(each)]
    signatures = sorted({each[f"{name}_signature"] for each in scores for name in METRICS})
    notes.append("sacrebleu's signatures: " + ", ".join(f"`{each}`" for each in signatures))
    about = f"Of the parameters in `{CHECKPOINT}`, by beam search.\n\n"
    return about + "\n".join([_table(rows), "", *(f"- {note}" for note in notes)])


def _notes(scores: dict) -> list[str]:
    """What else determined the scores of a test set."""
    notes = {
        "references": lambda name: f"the references are {name}" if name.startswith("sacrebleu's ") else None,
        "left_out_lines": lambda lines: f"{len(lines)} sentences longer than the model's limit are left out",
        "truncated_lines": lambda lines: f"{len(lines)} sources longer than the model's limit are cut",
        "int8": lambda _: "computed with 8-bit integers",
        "new_piece_penalty": lambda penalty: f"with a penalty of {penalty:g} on new pieces",
    }
    found = [note(scores[key]) for key, note in notes.items() if scores.get(key)]
    return [f"{scores['test_set']}: {note}" for note in found if note]


def _versions(ours: str) -> str:
    found = [("adaptively-sparse", ours), ("Python", platform.python_version())]
    for name in _PACKAGES:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:  # one of fairseq's two distributions
            continue
    return _table([("package", "version at release"), *found])


def _table(rows: list[tuple[str, ...]]) -> str:
    head, *rest = (f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *rest])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
