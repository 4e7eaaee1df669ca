"""The tables of :mod:`.findings`: systems side by side, a row for each over its seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..tables import Column, markdown, mean_and_deviation, seed_list, seed_mean, significance, table
from ..translation.significance import holm
from .findings import DENSE, MEASURES, MOVED, PARTS, PRUNED, SPARSE
from .head_tests import modes_test

Systems = dict[str, list[dict]]  # by name, what a finding has of each seed


def findings_tables(systems: dict[str, dict[str, Any]]) -> str:
    """A Markdown table for each finding, with what its columns mean; a row is one system over its seeds.

    Args:
        systems: by name, what :func:`~.findings.findings` returns; a table omits those without the finding.
    """
    shown = []
    for title, (finding, make) in _TABLES.items():
        enough = any if finding == "rising" else all
        having = {name: system[finding] for name, system in systems.items() if enough(system[finding])}
        if having:
            shown.append(f"**{title}**\n\n{make(having)}")
    return "\n\n".join(shown)


def _range(seeds: list[dict], measure: str, form: str) -> str:
    """From the least to the greatest value of a measure over seeds and their heads."""
    least = min(seed[f"{measure}_min"] for seed in seeds)
    greatest = max(seed[f"{measure}_max"] for seed in seeds)
    return f"{least:{form}}–{greatest:{form}}"


_ATTENTION = [
    seed_mean("mean α", "alpha_mean", ".3f"),
    Column("α from–to", lambda seeds: _range(seeds, "alpha", ".2f")),
    seed_mean("density", "density_mean", ".3f"),
    seed_list(f"heads ≥ {DENSE}", "dense"),
    seed_list(f"heads < {SPARSE}", "sparse"),
    seed_mean("density of union", "union_density", ".3f"),
    seed_mean("diversity", "diversity", ".3f"),
]
_TRAINING = [
    seed_mean("mean α, first", "alpha_first", ".3f"),
    seed_mean("least", "alpha_least", ".3f"),
    seed_mean("last", "alpha_last", ".3f"),
    seed_mean("deviation, first", "spread_first", ".3f"),
    seed_mean("least", "spread_least", ".3f"),
    seed_mean("last", "spread_last", ".3f"),
    Column("heads", lambda seeds: str(seeds[0]["heads"])),
    seed_list("fell", "fell"),
    seed_list("then rose", "turned"),
    Column(
        "at",
        lambda seeds: ", ".join(
            "–" if seed["turned_at"] is None else f"{seed['turned_at']:.0f}" for seed in seeds
        ),
    ),
]


def _ranked(header: str, measure: str) -> Column:
    """A measure of a head and, in parentheses, its rank; empty where it has none."""

    def cell(head: dict) -> str:
        return "" if head[measure] is None else f"{head[measure]:.3f} ({head[f'{measure}_rank']})"

    return Column(header, cell)


_RISING = [
    Column("first α", lambda head: f"{head['alpha_first']:.2f}"),
    Column("least", lambda head: f"{head['alpha_least']:.2f}"),
    Column("at update", lambda head: str(head["least_at"])),
    Column("last", lambda head: f"{head['alpha_last']:.2f}"),
    _ranked("density (rank)", "density"),
    _ranked("previous position (rank)", "confidence_previous"),
    _ranked("importance (rank)", "importance"),
]


def _correlations(systems: Systems, names: dict[str, str]) -> list[Column]:
    """Columns of rank correlations, seed by seed; a star where p < 0.05 after Holm's adjustment over all.

    ``names``: header of each correlation, by its key; each is ρ and p.
    """
    kinds = [kind for seeds in systems.values() for seed in seeds for kind in seed.values()]
    family = [kind[name][1] for kind in kinds for name in names if kind[name][1] is not None]
    adjusted = dict(zip(family, holm(family)))

    def cell(seeds: list[dict], name: str) -> str:
        if all(seed[name][0] is None for seed in seeds):
            return ""
        return ", ".join(
            "–" if rho is None else f"{rho:+.2f}{'*' if adjusted[p] < 0.05 else ''}"
            for rho, p in (seed[name] for seed in seeds)
        )

    return [Column(header, lambda seeds, name=name: cell(seeds, name)) for name, header in names.items()]


_STARS = "*: p < 0.05 after Holm's adjustment over all correlations of this table."


def _by_attention(systems: Systems, columns: list[Column]) -> str:
    """A row for each attention type and system."""
    rows = []
    for kind in dict.fromkeys(kind for seeds in systems.values() for seed in seeds for kind in seed):
        for name, seeds in systems.items():
            mine = [seed[kind] for seed in seeds if kind in seed]
            if mine:
                rows.append(([kind.replace("_", " "), name], mine))
    return table(["attention", "system"], rows, columns)


def _attention_table(systems: Systems) -> str:
    return _by_attention(systems, _ATTENTION)


def _modes_table(systems: Systems) -> str:
    def together(seeds: list[dict]) -> float:
        return modes_test([alpha for seed in seeds for alpha in seed["alphas"]])

    columns = [
        Column("p of one mode", lambda seeds: ", ".join(significance(seed["one_mode"]) for seed in seeds)),
        Column("all seeds", lambda seeds: significance(together(seeds))),
    ]
    return (
        f"{_by_attention(systems, columns)}\n\np: of Silverman's test of one mode of α over heads, "
        "seed by seed and over the heads of all seeds, not adjusted. Small: α has several modes."
    )


def _parts_table(systems: Systems) -> str:
    return _by_attention(systems, [seed_mean(header, part, ".3f") for part, header in PARTS.items()])


def _layer_table(systems: Systems, cell: Callable[[list[dict]], str]) -> str:
    """A column for each layer; ``cell`` formats the figures of all seeds, unless one lacks the layer."""
    depth = max(len(layers) for seeds in systems.values() for seed in seeds for layers in seed.values())

    def at(layer: int) -> Callable[[list[list[dict]]], str]:
        return lambda seeds: cell([seed[layer] for seed in seeds]) if layer < min(map(len, seeds)) else ""

    return _by_attention(systems, [Column(f"layer {layer}", at(layer)) for layer in range(depth)])


def _diversity_table(systems: Systems) -> str:
    return _layer_table(
        systems, lambda seeds: mean_and_deviation((seed["diversity"] for seed in seeds), ".3f")
    )


def _density_table(systems: Systems) -> str:
    return _layer_table(systems, lambda seeds: _range(seeds, "density", ".3f"))


def _training_table(systems: Systems) -> str:
    names = {"first_last": "ρ of first α with last", "first_density": "ρ of first α with density"}
    return (
        f"{_by_attention(systems, [*_TRAINING, *_correlations(systems, names)])}\n\n"
        "Deviation: over heads. Least: over updates. Fell, "
        f"rose: by at least {MOVED}; seed by seed. At: median update of the least α of heads that rose. ρ: "
        f"Spearman's rank correlation over heads, seed by seed. {_STARS}"
    )


def _rising_table(systems: Systems) -> str:
    rows = [
        ([head["attention"].replace("_", " "), name, seed, f"{head['layer']}.{head['head']}"], head)
        for name, seeds in systems.items()
        for seed, heads in enumerate(seeds, 1)
        for head in heads or ()
    ]
    listed = table(["attention", "system", "model", "layer.head"], rows, _RISING)
    return (
        f"{listed}\n\nModel: by its place among the files of its system. At update: of the least α. Previous "
        "position: mean weight on it. Importance: nats per token added by masking the head. Ranks: among the "
        "heads of the attention type; 1 is the sparsest, the most weight, the most important."
    )


def _importance_table(systems: Systems) -> str:
    columns = _correlations(systems, {"density": "ρ with density", "alpha": "ρ with α"})
    return (
        f"{_by_attention(systems, columns)}\n\nρ: Spearman's rank correlation, over heads, of "
        "the loss added when a head is masked, seed by seed. Below 0 with density: sparse heads matter more. "
        f"{_STARS}"
    )


def _role_table(systems: Systems) -> str:
    rows = []
    for measure, role in MEASURES.items():
        for name, seeds in systems.items():
            mine = [seed[measure] for seed in seeds if measure in seed]
            if mine:
                rows.append(([measure, name, f"{role.threshold:g}"], mine))
    columns = [
        seed_list("heads that reach it", "reached"),
        seed_list("best head's value", "value", ".3f"),
        Column("best of all seeds", _best_head),
    ]
    return table(["measure", "system", "threshold"], rows, columns)


def _best_head(seeds: list[dict]) -> str:
    best = max(seeds, key=lambda seed: seed["value"])
    where = f"{best['attention']} {best['layer']}.{best['head']}"
    return f"{best['value']:.3f}, {where}, α {best['alpha']:.2f}, density {best['density']:.2f}"


def _pruning_table(systems: Systems) -> str:
    whole = [seed_mean("loss", "loss", ".3f"), seed_mean("most important head", "most_important", ".3f")]
    shares = [f"{share:g}" for share in PRUNED]
    rows = []
    for name, seeds in systems.items():
        for i, order in enumerate(seeds[0]["added"]):
            if any(order not in seed["added"] for seed in seeds):
                continue
            first = [name, *(column.cell(seeds) for column in whole)] if i == 0 else [""] * 3
            costs = [
                mean_and_deviation((seed["added"][order][share] for seed in seeds), ".3f") for share in shares
            ]
            rows.append([*first, order, *costs])
    headers = ["system", *(column.header for column in whole), "pruned by"]
    headers += [f"{float(share):.0%} pruned" for share in shares]
    return (
        f"{markdown(rows, headers)}\n\nNats per token: the loss of the whole model; the loss added by "
        "masking its most important head; the loss added by pruning a share of all heads: the least "
        "important first, the densest first, those of the smallest α first, or at random."
    )


_TABLES: dict[str, tuple[str, Callable[[Systems], str]]] = {
    "What the heads are like": ("attention", _attention_table),
    "Modes of α": ("modes", _modes_table),
    "Weight on the parts of the input": ("parts", _parts_table),
    "Diversity by layer": ("layers", _diversity_table),
    "Density by layer, least to greatest": ("layers", _density_table),
    "α over training": ("training", _training_table),
    "Heads whose α rose again": ("rising", _rising_table),
    "Roles": ("roles", _role_table),
    "Importance of heads": ("importance", _importance_table),
    "Pruning": ("pruning", _pruning_table),
}
"""By title: the finding, and the function that makes the table."""
