"""The paper's findings, asked of systems that were each trained from several seeds.

Sources: Correia et al. 2019, section 5: α over training, density, diversity, what single heads do. Pruning is
beyond the paper, as :mod:`.importance` has it.
"""

from __future__ import annotations

import statistics as means
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..attention import ATTENTION_TYPES
from ..errors import UserError
from ..io import parse_json, read_text
from .importance import rank_correlation
from .roles import ROLES
from .sources import ModelAnalysis, check_same_model, read_statistics
from .trajectories import read_trajectories


def _as(role: str) -> tuple[tuple[str, ...], float]:
    """Whose heads can have a role, and from which value on they have it."""
    return ROLES[role].attentions or ATTENTION_TYPES, ROLES[role].threshold


MEASURES = {  # that a head can be best at
    "confidence_previous": _as("previous position"),
    "confidence_next": _as("next position"),
    "confidence_current": _as("current position"),
    "subword_merging": _as("subword merging"),
    "subword_merging_split": _as("subword merging"),
    "subword_merging_confidence": _as("subword merging"),
    "interrogation": _as("interrogation"),
    "eos": _as("</s> sink"),
}
DENSE, SPARSE = 0.98, 0.5
"""A head is called dense from this density on, sparse below that one."""
MOVED = 0.05
"""How far α must go to have fallen, or to have risen again."""


@dataclass(frozen=True)
class Model(ModelAnalysis):
    """What is known of one model; the importance of its heads, where that was measured."""

    importance: dict | None = None


def read_model(path: Path) -> Model:
    """Read ``NAME.heads.json`` and, where they lie beside it, ``NAME.importance.json`` and ``alpha.jsonl``.

    Raises:
        UserError: a file is not what its name says, or the α log is of another model.
    """
    log = path.with_name("alpha.jsonl")
    importance = path.with_name(path.name.removesuffix(".json").removesuffix(".heads") + ".importance.json")
    model = Model(
        str(path),
        read_statistics(path),
        read_trajectories(log) if log.is_file() else None,
        importance=_read_importance(importance) if importance.is_file() else None,
    )
    check_same_model(model)
    return model


def findings(models: list[Model]) -> dict[str, Any]:
    """Of each model of one system, the figures that :data:`FINDINGS` asks for, by finding.

    ``attention``: of each attention type. ``layers``: of each of its layers. ``roles``: for each of
    :data:`MEASURES` the best head. ``training``: of each attention type, what became of its α's; None where
    there is no α log. ``pruning``: None where importance was not measured.
    """
    return {name: [finding(model) for model in models] for name, finding in FINDINGS.items()}


def attention(model: Model) -> dict[str, dict]:
    """By attention type: α, density, how many heads are dense and sparse, diversity, density of the union.

    ``diversity`` and ``union_density`` are means over layers, everything else over heads.
    """
    found = {}
    for kind, heads in _by_attention(model.statistics["heads"]).items():
        alphas, densities = ([row[name] for row in heads] for name in ("alpha", "density"))
        layers = _by_attention(model.statistics["layers"])[kind]
        found[kind] = {
            "heads": len(heads),
            "alpha_mean": means.fmean(alphas),
            "alpha_min": min(alphas),
            "alpha_max": max(alphas),
            "density_mean": means.fmean(densities),
            "density_min": min(densities),
            "dense": sum(density >= DENSE for density in densities),
            "sparse": sum(density < SPARSE for density in densities),
            "union_density": means.fmean(row["union_density"] for row in layers),
            "diversity": _mean(row["diversity"] for row in layers),
        }
    return found


def layers(model: Model) -> dict[str, list[float | None]]:
    """By attention type: the diversity of each layer's heads."""
    rows = _by_attention(model.statistics["layers"])
    return {kind: [row["diversity"] for row in mine] for kind, mine in rows.items()}


def roles(model: Model) -> dict[str, dict]:
    """By measure: the best head, with its value, α and density, and how many heads reach the threshold.

    A measure that no head has a value of, as of questions in a corpus without any, is not there.
    """
    found = {}
    for measure, (kinds, threshold) in MEASURES.items():
        able = [
            row
            for row in model.statistics["heads"]
            if row["attention"] in kinds and row.get(measure) is not None
        ]
        if able:
            best = max(able, key=lambda row: row[measure])
            found[measure] = {
                "threshold": threshold,
                "reached": sum(row[measure] >= threshold for row in able),
                "value": best[measure],
                **{name: best[name] for name in ("attention", "layer", "head", "alpha", "density")},
            }
    return found


def training(model: Model) -> dict[str, dict] | None:
    """By attention type: did α fall first, and then part?

    ``fell``: heads whose α went at least :data:`MOVED` below where it began. ``turned``: those of them whose
    last α is at least as far above their least. ``turned_at``: the median update of that least α.
    ``spread_first``, ``spread_last``: standard deviation of α over heads. ``start_kept``: Spearman's rank
    correlation, over heads, of the first α with the last; None as :func:`.rank_correlation` says.
    """
    if model.trajectories is None:
        return None
    updates = np.array(model.trajectories.updates)
    found = {}
    for kind, alphas in model.trajectories.alphas.items():
        alphas = alphas.reshape(len(updates), -1)
        least = alphas.min(0)
        fell = alphas[0] - least >= MOVED
        turned = fell & (alphas[-1] - least >= MOVED)
        found[kind] = {
            "heads": alphas.shape[1],
            "alpha_first": float(alphas[0].mean()),
            "alpha_last": float(alphas[-1].mean()),
            "spread_first": float(alphas[0].std()),
            "spread_last": float(alphas[-1].std()),
            "start_kept": rank_correlation(alphas[0], alphas[-1])[0],
            "fell": int(fell.sum()),
            "turned": int(turned.sum()),
            "turned_at": float(np.median(updates[alphas.argmin(0)[turned]])) if turned.any() else None,
        }
    return found


def pruning(model: Model) -> dict[str, Any] | None:
    """What pruning costs, in nats per token: ``added`` loss by order and share of the heads pruned.

    ``correlation``: Spearman's of importance with density, by attention type, and over ``all`` heads.
    """
    if model.importance is None:
        return None
    loss, curves = model.importance["loss"], model.importance["curves"]
    added = {}
    for order, curve in curves.items():
        each = np.array(curve["losses"]) - loss
        shares = np.array(curve["pruned"]) / curve["pruned"][-1]
        added[order] = {f"{share:g}": float(_at(share, shares, each)) for share in (0.25, 0.5, 0.75)}
    return {
        "loss": loss,
        "most_important": max(row["importance"] for row in model.importance["heads"]),
        "added": added,
        "correlation": {
            row["attention"]: row["spearman"]
            for row in model.importance["correlations"]
            if row["measure"] == "density"
        },
    }


FINDINGS: dict[str, Callable[[Model], Any]] = {
    "attention": attention,
    "layers": layers,
    "roles": roles,
    "training": training,
    "pruning": pruning,
}


def _at(share: float, shares: np.ndarray, losses: np.ndarray) -> float:
    """The mean over orders (N, P) at a share of the heads, between two points in proportion."""
    return np.interp(share, shares, losses.mean(0))


def _by_attention(rows: list[dict]) -> dict[str, list[dict]]:
    return {
        kind: [row for row in rows if row["attention"] == kind]
        for kind in ATTENTION_TYPES
        if any(row["attention"] == kind for row in rows)
    }


def _mean(values) -> float | None:
    values = list(values)
    return None if None in values else means.fmean(values)


def _read_importance(path: Path) -> dict:
    try:
        found = parse_json(read_text(path, "the importance of heads"))
        _ = [found["loss"] + 0.0, *(row["importance"] + 0.0 for row in found["heads"])]
        _ = [row["spearman"] for row in found["correlations"] if row["measure"] + row["attention"]]
        for curve in found["curves"].values():
            if np.array(curve["losses"]).shape[1:] != np.array(curve["pruned"]).shape:
                raise ValueError("a curve of unlike lengths")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"{path} is not what head_importance.py writes ({error}); write it anew, or move it away"
        ) from None
    return found
