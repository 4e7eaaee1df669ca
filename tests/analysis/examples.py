"""Synthetic analysis results in the formats of real ones."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from user_dir.analysis import maps
from user_dir.analysis.maps import SentenceMaps
from user_dir.attention.types import ATTENTION_TYPES

ROLES = {
    "previous position": "confidence_previous",
    "next position": "confidence_next",
    "current": "confidence_current",
    "subword merging": "subword_merging",
    "interrogation": "interrogation",
    "</s> sink": "eos",
}


def sentence(source=5, target=4, layers=2, heads=3, seed=0, words=None, **more) -> SentenceMaps:
    """Maps whose rows sum to 1, with some exact zeros."""
    random = np.random.default_rng(seed)
    sizes = {"encoder_self": (source, source), "decoder_self": (target, target)}
    sizes["decoder_context"] = (target, source)
    weights = {}
    for name, (queries, keys) in sizes.items():
        raw = random.random((layers, heads, queries, keys)) - np.linspace(0, 0.9, layers * heads).reshape(
            layers, heads, 1, 1
        )
        raw[..., 0] = 1
        raw = (np.tril(raw) if name == "decoder_self" else raw).clip(min=0)
        weights[name] = (raw / raw.sum(-1, keepdims=True)).astype(np.float32)
    words = words or [f"▁wört{i}" for i in range(max(source, target))]
    return SentenceMaps(
        weights=weights,
        alphas={name: 1 + random.random((layers, heads)) for name in weights},
        source=[*words[: source - 1], "</s>"],
        target_input=["</s>", *words[: target - 1]],
        target=[*words[: target - 1], "</s>"],
        **{"text": "", "corpus": "multi30k", "subset": "valid", **more},
    )


def statistics(layers=2, heads=3, seed=0, name="model.pt") -> dict:
    """Statistics as written by heads.py."""
    random = np.random.default_rng(seed)
    rows = []
    for kind, layer, head in product(ATTENTION_TYPES, range(layers), range(heads)):
        row = {"attention": kind, "layer": layer, "head": head}
        row["alpha"] = round(float(1 + random.beta(2, 2)), 6)
        densities = random.beta(4, 1 + 6 * (row["alpha"] - 1), 50)
        row["density"], row["density_std"] = float(densities.mean()), float(densities.std())
        row["density_histogram"] = np.histogram(densities, 20, (0, 1))[0].tolist()
        row["output_norm"], row["entropy"] = float(random.random()), float(random.random() * 3)
        for column in (*ROLES.values(), "subword_merging_confidence", "punctuation"):
            row[column] = float(random.random())
        if kind != "encoder_self":
            row["interrogation"] = None
        row["roles"] = [role for role, column in ROLES.items() if (row[column] or 0) > 0.8]
        rows.append(row)
    layer_rows = []
    for kind, layer in product(ATTENTION_TYPES, range(layers)):
        row = {"attention": kind, "layer": layer, "diversity": float(random.random() / 2)}
        row["union_density"] = float(0.9 + random.random() / 10)
        of_layer = [head for head in rows if (head["attention"], head["layer"]) == (kind, layer)]
        layer_rows.append({**row, "sorted_densities": sorted(head["density"] for head in of_layer)})
    roles = {}
    for role, column in ROLES.items():
        able = sorted((row for row in rows if row[column] is not None), key=lambda row: -row[column])
        places = [{key: row[key] for key in ("attention", "layer", "head")} for row in able]
        ranked = [{**place, "value": row[column]} for place, row in zip(places, able)]
        roles[role] = {"measure": column, "threshold": 0.8, "heads": ranked}
    about = {"checkpoint": name, "corpus": "multi30k", "subset": "valid", "sentences": 50}
    about.update(source_lang="de", target_lang="en")
    return {**about, "heads": rows, "layers": layer_rows, "roles": roles}


def write_statistics(path: Path, **options) -> Path:
    path.write_text(json.dumps(statistics(name=path.stem, **options)), encoding="utf-8")
    return path


def write_maps(folder: Path, sentences=None) -> Path:
    """Maps of one sentence, or those given."""
    maps.write_maps(folder, sentences or [sentence()])
    return folder


def alpha_lines(layers=2, heads=3, updates=range(0, 500, 100), seed=0) -> list[str]:
    """Lines of an α log."""
    random = np.random.default_rng(seed)
    alphas = {name: 1.2 + 0.6 * random.random((layers, heads)) for name in ATTENTION_TYPES}
    lines = []
    for update in updates:
        values = {name: np.round(rows, 6).tolist() for name, rows in alphas.items()}
        lines.append(json.dumps({"update": update, **values}))
        alphas = {
            name: (rows + random.normal(0, 0.03, rows.shape)).clip(1.01, 2) for name, rows in alphas.items()
        }
    return lines


def write_alpha_log(path: Path, **options) -> Path:
    path.write_text("".join(line + "\n" for line in alpha_lines(**options)), encoding="utf-8")
    return path


def panels(figure: Figure) -> list:
    return [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]


def lightness(colour) -> float:
    """Relative luminance (WCAG 2)."""
    channels = np.array(to_rgb(colour))
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def all_heads(model) -> list[tuple[str, int, int]]:
    """All heads of a model: attention type, layer and head."""
    return [
        (kind, layer, head)
        for kind, layers in model.alphas().items()
        for layer, alphas in enumerate(layers)
        for head in range(len(alphas))
    ]
