"""The data of the page, as plain values for JSON."""

from __future__ import annotations

import base64
import zlib
from itertools import islice, zip_longest

import numpy as np

from ...attention_types import ATTENTION_TYPES, TITLES
from ..head_tables import by_attention
from ..maps import Maps, SentenceMaps
from ..result_files import ModelAnalysis
from ..trajectories import Trajectories

# More points of a trajectory than this are not visible on a screen.
_POINTS = 240


def report_data(models: list[ModelAnalysis], sentences: int) -> dict:
    """Everything that the page shows; of the attention maps, the first ``sentences`` of each model."""
    return {
        "types": [{"key": key, "title": TITLES[key]} for key in ATTENTION_TYPES],
        "measures": {
            name: text for model in models for name, text in model.statistics.get("measures", {}).items()
        },
        "models": [_model(model, sentences) for model in models],
    }


def _model(model: ModelAnalysis, sentences: int) -> dict:
    statistics, heads = model.statistics, by_attention(model.statistics["heads"])
    about = ("checkpoint", "update", "averaged", "corpus", "subset", "sentences")
    about += ("source_lang", "target_lang", "target")
    return {
        "name": model.name,
        "about": {name: statistics.get(name) for name in about},
        "heads": [_rounded(row) for row in statistics["heads"]],
        "densities": {name: _density_counts(heads.get(name, [])) for name in ATTENTION_TYPES},
        "layers": [_rounded(row) for row in statistics["layers"]],
        "roles": statistics["roles"],
        "trajectories": model.trajectories and _trajectories(model.trajectories),
        "maps": model.maps and _maps(model.maps, model.attributions, sentences),
    }


def _rounded(row: dict) -> dict:
    """A row of statistics for the page: four decimals, without the histogram."""
    return {
        name: round(value, 4) if isinstance(value, float) else value
        for name, value in row.items()
        if name in ("roles",) or not isinstance(value, list)
    }


def _density_counts(heads: list[dict]) -> list[int]:
    return np.sum([row["density_histogram"] for row in heads], axis=0).tolist() if heads else []


def _trajectories(trajectories: Trajectories) -> dict | None:
    """At most ``_POINTS`` evenly spaced points, including the first and the last; a single one is no line."""
    count = len(trajectories.updates)
    if count == 1:
        return None
    kept = np.unique(np.linspace(0, count - 1, min(count, _POINTS)).round().astype(int))
    return {
        "updates": [trajectories.updates[index] for index in kept],
        "recorded": count,
        "heads": [
            {"attention": name, "layer": layer, "head": head, "alpha": alphas[kept].round(4).tolist()}
            for name, layer, head, alphas in trajectories.heads()
        ],
    }


def _maps(maps: Maps, attributions: list[dict] | None, sentences: int) -> dict:
    first = maps[0]
    measured = [_planes(each) for each in attributions or []]
    arrays = {**first.weights, **(measured[0] if measured else {})}
    shown = islice(maps, len(measured) if measured else sentences)
    return {
        "shape": {name: list(each.shape[:2]) for name, each in arrays.items()},
        "sentences": [_sentence(each, more) for each, more in zip_longest(shown, measured, fillvalue={})],
    }


def _planes(attribution: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Attributions in the layout of maps: (L, 1, T, S); signed ones as (1, 2, T, S), the second negated."""
    return {
        name: np.stack([each, -each], axis=1).clip(0) if name.startswith("gradient") else each[:, None]
        for name, each in attribution.items()
    }


def _sentence(sentence: SentenceMaps, attribution: dict[str, np.ndarray]) -> dict:
    # In the order of "shape", concatenated; deflated, because many weights are zero.
    arrays = (*sentence.weights.values(), *attribution.values())
    weights = b"".join(quantised(each).tobytes() for each in arrays)
    return {
        "text": sentence.text,
        "source": sentence.source,
        "target_input": sentence.target_input,
        "target": sentence.target,
        "weights": base64.b64encode(zlib.compress(weights)).decode("ascii"),
    }


def quantised(weights: np.ndarray) -> np.ndarray:
    """Quantise weights in [0, 1] to bytes q that represent (q/255)², which is fine for small weights.

    Only an exact 0 becomes 0; the smallest other value represents 1/65025. The error of a weight p is at most
    √p/255 + 1/65025, so 1 % is shown to within 0.04 %.
    """
    steps = np.rint(np.sqrt(weights.clip(0, 1)) * 255).astype(np.uint8)
    return np.where(weights > 0, np.maximum(steps, 1), 0).astype(np.uint8)
