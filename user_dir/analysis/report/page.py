"""Assembles template, style, scripts and the data of models into one page."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np

from ...attention.types import ATTENTION_TYPES, TITLES
from ...files import write_text
from ..maps import SentenceMaps
from ..results import ModelAnalysis, by_attention
from ..trajectories import Trajectories

_FOLDER = Path(__file__).resolve().parent
_SCRIPTS = ("elements.js", "files.js", "charts.js", "figures.js", "tables.js", "words.js", "matrix.js")
_SCRIPTS += ("explorer.js", "main.js")
_ABOUT = ("checkpoint", "update", "averaged", "corpus", "subset", "sentences")
_ABOUT += ("source_lang", "target_lang", "target")
_POINTS = 240  # more points of a trajectory are not visible on a screen


def write_report(models: Sequence[ModelAnalysis], path: str | Path, sentences: int = 50) -> None:
    """Write the page about ``models`` to ``path``, with the attention maps of the first ``sentences``.

    The page loads no other files, so it works from a file:// address and without a network.
    """
    write_text(path, report_page(models, sentences))


def report_page(models: Sequence[ModelAnalysis], sentences: int = 50) -> str:
    """The page as a string."""
    data = json.dumps(report_data(models, sentences), ensure_ascii=False)
    content = {
        "title": escape("What the heads learned: " + ", ".join(model.name for model in models)),
        "style": _read("style.css"),
        "script": "\n".join(map(_read, _SCRIPTS)),
        "data": data.replace("<", "\\u003c"),  # so that no text ends the script element or opens a comment
    }
    return re.sub("{{(.*?)}}", lambda match: content[match[1]], _read("template.html"))


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def report_data(models: Sequence[ModelAnalysis], sentences: int) -> dict:
    """Everything that the page shows; of the attention maps, the first ``sentences`` of each model."""
    definitions = {}
    for model in models:
        definitions |= model.statistics.get("measures", {})
    return {
        "types": [{"key": key, "title": TITLES[key]} for key in ATTENTION_TYPES],
        "measures": definitions,
        "models": [_model(model, sentences) for model in models],
    }


def _model(model: ModelAnalysis, sentences: int) -> dict:
    statistics = model.statistics
    counts = {
        kind: np.sum([row["density_histogram"] for row in rows], axis=0).tolist()
        for kind, rows in by_attention(statistics["heads"]).items()
    }
    return {
        "name": model.name,
        "about": {name: statistics.get(name) for name in _ABOUT},
        "heads": [_rounded(row) for row in statistics["heads"]],
        "densities": {kind: counts.get(kind, []) for kind in ATTENTION_TYPES},
        "layers": [_rounded(row) for row in statistics["layers"]],
        "roles": statistics["roles"],
        "trajectories": model.trajectories and _trajectories(model.trajectories),
        "maps": model.maps and _maps(model.maps, sentences),
    }


def _rounded(row: dict) -> dict:
    """A row of statistics for the page: six decimals, without the histogram."""
    return {
        name: round(value, 6) if isinstance(value, float) else value
        for name, value in row.items()
        if name == "roles" or not isinstance(value, list)
    }


def _trajectories(trajectories: Trajectories) -> dict | None:
    """At most ``_POINTS`` evenly spaced points with the first and the last; None if there is only one."""
    count = len(trajectories.updates)
    if count == 1:
        return None
    kept = np.unique(np.linspace(0, count - 1, min(count, _POINTS)).round().astype(int))
    return {
        "updates": [trajectories.updates[index] for index in kept],
        "recorded": count,
        "heads": [
            {"attention": kind, "layer": layer, "head": head, "alpha": of_head[kept].round(6).tolist()}
            for kind, alphas in trajectories.alphas.items()
            for layer, of_layer in enumerate(alphas.swapaxes(0, 1))  # (U, H)
            for head, of_head in enumerate(of_layer.T)
        ],
    }


def _maps(maps: Sequence[SentenceMaps], sentences: int) -> dict:
    return {
        "shape": {name: list(weights.shape[:2]) for name, weights in maps[0].weights.items()},
        "sentences": [_sentence(sentence) for sentence in maps[:sentences]],
    }


def _sentence(sentence: SentenceMaps) -> dict:
    # In the order of "shape", concatenated; deflated, because many weights are zero.
    # Divided by sums above 1, which ReLA's weights may have.
    shares = (layer / np.maximum(layer.sum(-1, keepdims=True), 1) for layer in sentence.weights.values())
    weights = b"".join(quantised(layer).tobytes() for layer in shares)
    return {
        "text": sentence.text,
        "source": sentence.source,
        "target_input": sentence.target_input,
        "target": sentence.target,
        "weights": base64.b64encode(zlib.compress(weights)).decode("ascii"),
    }


def quantised(weights: np.ndarray) -> np.ndarray:
    """Quantise weights in [0, 1] to bytes q that represent (q/255)², in finer steps for small weights.

    Only an exact 0 becomes 0; the smallest other value represents 1/65025. The error of a weight p is at most
    √p/255 + 1/65025, so 1 % is shown to within 0.04 %.
    """
    steps = np.rint(np.sqrt(weights.clip(0, 1)) * 255).astype(np.uint8)
    return np.where(weights > 0, np.maximum(steps, 1), 0).astype(np.uint8)
