"""The paper's findings, checked for systems that were each trained from several seeds.

Source: Correia et al. 2019, section 5: α over training, density, diversity, roles of single heads. Importance
and pruning of heads (:mod:`.importance`) are not in the paper.
"""

from __future__ import annotations

import statistics as means
from typing import Any

import numpy as np

from ..attention_types import ATTENTION_TYPES
from .head_tables import alpha_and_density, by_attention, by_layer, head_of
from .head_tests import modes_test, rank_correlation
from .result_files import ModelAnalysis
from .roles import ROLES

_MERGING = ROLES["subword merging"]
MEASURES = {
    "confidence_previous": ROLES["previous position"],
    "confidence_next": ROLES["next position"],
    "confidence_current": ROLES["current position"],
    "subword_merging": _MERGING,
    "subword_merging_split": _MERGING._replace(measure="subword_merging_split"),
    "subword_merging_confidence": _MERGING._replace(measure="subword_merging_confidence"),
    "interrogation": ROLES["interrogation"],
    "eos": ROLES["</s> sink"],
}
"""What a head can be best at."""
PARTS = {"on_source": "source", "on_separator": "[SEP]", "on_translation": "machine translation"}
DENSE, SPARSE = 0.98, 0.5
"""A head is called dense from the first density on, sparse below the second."""
MOVED = 0.05
"""The least change of α that counts as a fall, or as a rise after it."""
PRUNED = (0.25, 0.5, 0.75)
"""The shares of the heads after whose pruning the loss is shown."""


def findings(models: list[ModelAnalysis]) -> dict[str, Any]:
    """For each of :data:`FINDINGS`, its figures for each model of one system, in the order of the models.

    ``training`` and ``rising`` are None for a model without α log, ``importance`` and ``pruning`` for one
    whose importance of heads was not measured.
    """
    return {finding.__name__: [finding(model) for model in models] for finding in FINDINGS}


def attention(model: ModelAnalysis) -> dict[str, dict]:
    """By attention type: α, density, how many heads are dense and sparse, diversity, density of the union.

    ``diversity`` and ``union_density`` are means over layers, everything else over heads.
    """
    found, layer_rows = {}, by_attention(model.statistics["layers"])
    for kind, heads in by_attention(model.statistics["heads"]).items():
        densities, layers = [row["density"] for row in heads], layer_rows[kind]
        found[kind] = {
            "heads": len(heads),
            **alpha_and_density(heads),
            "density_min": min(densities),
            "dense": sum(density >= DENSE for density in densities),
            "sparse": sum(density < SPARSE for density in densities),
            "union_density": means.fmean(row["union_density"] for row in layers),
            "diversity": _mean(row["diversity"] for row in layers),
        }
    return found


def modes(model: ModelAnalysis) -> dict[str, dict]:
    """By attention type whose heads differ in α: all α, and the p-value of one mode (:func:`.modes_test`)."""
    found = {}
    for kind, heads in by_attention(model.statistics["heads"]).items():
        alphas = [row["alpha"] for row in heads]
        p = modes_test(alphas)
        if p is not None:
            found[kind] = {"alphas": alphas, "one_mode": p}
    return found


def parts(model: ModelAnalysis) -> dict[str, dict]:
    """By attention type that sees the input of a post-editor: the mean weight on each of its parts."""
    found = {}
    for kind, heads in by_attention(model.statistics["heads"]).items():
        weights = {part: _mean(row.get(part) for row in heads) for part in PARTS}
        if None not in weights.values():
            found[kind] = weights
    return found


def layers(model: ModelAnalysis) -> dict[str, list[dict]]:
    """By attention type: the diversity of each layer's heads, and their least and greatest density."""
    found, head_rows = {}, by_attention(model.statistics["heads"])
    for kind, rows in by_attention(model.statistics["layers"]).items():
        densities = by_layer(head_rows[kind], "density")
        found[kind] = [
            {
                "diversity": row["diversity"],
                "density_min": min(densities[row["layer"]]),
                "density_max": max(densities[row["layer"]]),
            }
            for row in rows
        ]
    return found


def roles(model: ModelAnalysis) -> dict[str, dict]:
    """By measure: the best head, with its value, α and density, and how many heads reach the threshold.

    A measure that no head has a value of, as of questions in a corpus without any, is not there.
    """
    found = {}
    for measure, role in MEASURES.items():
        able = role.able(model.statistics["heads"])
        if able:
            best = max(able, key=lambda row: row[measure])
            found[measure] = {
                "threshold": role.threshold,
                "reached": sum(row[measure] >= role.threshold for row in able),
                "value": best[measure],
                **{name: best[name] for name in ("attention", "layer", "head", "alpha", "density")},
            }
    return found


def training(model: ModelAnalysis) -> dict[str, dict] | None:
    """By attention type: whether α falls first and rises later, and what the initial α determines.

    ``fell``: heads whose α fell at least :data:`MOVED` below its initial value. ``turned``: those of them
    whose last α is at least as far above their least. ``turned_at``: the median update of that least α.
    ``alpha_first``, ``alpha_least``, ``alpha_last``: the mean α of the heads at the first update, its least
    over all updates, and at the last. ``spread_…``: the standard deviation of α over heads, likewise; a least
    below both others says that heads came together and parted again. ``first_last``: Spearman's rank
    correlation, over heads, of the initial α with the last, and its p-value; ``first_density``: of the
    initial α with the density of the trained head. Both as :func:`.rank_correlation` returns them.
    """
    if model.trajectories is None:
        return None
    updates = np.array(model.trajectories.updates)
    found, rows = {}, by_attention(model.statistics["heads"])
    for kind, alphas in model.trajectories.alphas.items():
        alphas = alphas.reshape(len(updates), -1)
        fell, turned = _fell_and_turned(alphas)
        found[kind] = {
            "heads": alphas.shape[1],
            **_path("alpha", alphas.mean(1)),
            **_path("spread", alphas.std(1)),
            "first_last": rank_correlation(alphas[0], alphas[-1]),
            "first_density": rank_correlation(alphas[0], [row["density"] for row in rows[kind]]),
            "fell": int(fell.sum()),
            "turned": int(turned.sum()),
            "turned_at": float(np.median(updates[alphas.argmin(0)[turned]])) if turned.any() else None,
        }
    return found


def rising(model: ModelAnalysis) -> list[dict] | None:
    """The heads that :func:`training` counts as ``turned``: their path of α, and what became of them.

    ``least_at`` is the update of the least α. ``density``, ``confidence_previous`` and ``importance`` come
    with their rank among the heads of the attention type (``density_rank``, …): 1 is the least density, and
    the greatest value of the other two. Value and rank are None where there is no value.
    """
    if model.trajectories is None:
        return None
    measured = model.importance["heads"] if model.importance else []
    rows, found = model.statistics["heads"], []
    for *where, alphas in model.trajectories.heads():
        if _fell_and_turned(alphas)[1]:
            head = dict(zip(("attention", "layer", "head"), where)) | _path("alpha", alphas)
            head["least_at"] = model.trajectories.updates[alphas.argmin()]
            head |= _ranked(where, rows, "density", smallest_first=True)
            head |= _ranked(where, rows, "confidence_previous") | _ranked(where, measured, "importance")
            found.append(head)
    return found


def importance(model: ModelAnalysis) -> dict[str, dict] | None:
    """By attention type: Spearman's rank correlation of importance with density and with α, and p-values.

    Not over the heads of all types together: context heads are both sparser and more important than others,
    which would look like a relation within each type.
    """
    if model.importance is None:
        return None
    found: dict[str, dict] = {}
    for row in model.importance["correlations"]:
        if row["attention"] in ATTENTION_TYPES and row["measure"] in ("density", "alpha"):
            found.setdefault(row["attention"], {})[row["measure"]] = row["spearman"], row["p_value"]
    return found


def pruning(model: ModelAnalysis) -> dict[str, Any] | None:
    """What pruning costs, in nats per token: ``added`` loss by order and share of the heads pruned."""
    if model.importance is None:
        return None
    loss, curves = model.importance["loss"], model.importance["curves"]
    added = {}
    for order, curve in curves.items():
        each = np.array(curve["losses"]) - loss
        shares = np.array(curve["pruned"]) / curve["pruned"][-1]
        costs = np.interp(PRUNED, shares, each.mean(0))  # in proportion between two points
        added[order] = {f"{share:g}": cost for share, cost in zip(PRUNED, costs.tolist())}
    return {
        "loss": loss,
        "most_important": max(row["importance"] for row in model.importance["heads"]),
        "added": added,
    }


FINDINGS = (attention, modes, parts, layers, roles, training, rising, importance, pruning)


def _path(name: str, values: np.ndarray) -> dict[str, float]:
    """The first, least and last of values (U,)."""
    return {
        f"{name}_first": float(values[0]),
        f"{name}_least": float(values.min()),
        f"{name}_last": float(values[-1]),
    }


def _fell_and_turned(alphas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whether α fell by :data:`MOVED`, and whether it then rose as much: (U, …) → (…), (…)."""
    least = alphas.min(0)
    fell = alphas[0] - least >= MOVED
    return fell, fell & (alphas[-1] - least >= MOVED)


def _ranked(where: list, rows: list[dict], measure: str, smallest_first: bool = False) -> dict:
    """A head's value of a measure, and its rank, from 1, among the heads of its attention type."""
    values = {head_of(row): row.get(measure) for row in rows if row["attention"] == where[0]}
    mine, rank = values.get(tuple(where)), None
    if mine is not None:
        others = [value for value in values.values() if value is not None]
        rank = 1 + sum(value < mine if smallest_first else value > mine for value in others)
    return {measure: mine, f"{measure}_rank": rank}


def _mean(values) -> float | None:
    values = list(values)
    return None if None in values else means.fmean(values)
