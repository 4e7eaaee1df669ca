"""Findings of several systems as Markdown: a row for each, its seeds as mean and standard deviation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..tables import markdown, spread
from .findings import DENSE, MEASURES, MOVED, SPARSE

Systems = dict[str, dict[str, Any]]


def findings_tables(systems: Systems) -> str:
    """One table for each finding, with what its columns mean; ``systems`` as :func:`~.findings.findings`."""
    tables = [
        ("What the heads are like", _attention),
        ("Diversity by layer", _layers),
        ("α over training", _training),
        ("Roles", _roles),
        ("Pruning", _pruning),
    ]
    made = [(title, table(systems)) for title, table in tables]
    return "\n\n".join(f"**{title}**\n\n{table}" for title, table in made if table)


def _attention(systems: Systems) -> str:
    def cells(seeds: list[dict]) -> list[str]:
        return [
            _over(seeds, "alpha_mean", ".3f"),
            f"{min(seed['alpha_min'] for seed in seeds):.2f}–{max(seed['alpha_max'] for seed in seeds):.2f}",
            _over(seeds, "density_mean", ".3f"),
            _listed(seeds, "dense"),
            _listed(seeds, "sparse"),
            _over(seeds, "union_density", ".3f"),
            _over(seeds, "diversity", ".3f"),
        ]

    headers = ["mean α", "α from–to", "density", f"heads ≥ {DENSE}", f"heads < {SPARSE}"]
    return _by_attention(systems, "attention", [*headers, "density of union", "diversity"], cells)


def _layers(systems: Systems) -> str:
    depth = max(
        len(values) for system in systems.values() for seed in system["layers"] for values in seed.values()
    )

    def cells(seeds: list[list]) -> list[str]:
        columns = [spread(values, ".3f") for values in zip(*seeds)]
        return columns + [""] * (depth - len(columns))

    return _by_attention(systems, "layers", [f"layer {layer}" for layer in range(depth)], cells)


def _training(systems: Systems) -> str:
    kept = {name: system for name, system in systems.items() if None not in system["training"]}
    if not kept:
        return ""

    def cells(seeds: list[dict]) -> list[str]:
        turned = ", ".join("–" if seed["turned_at"] is None else f"{seed['turned_at']:.0f}" for seed in seeds)
        return [
            *(_over(seeds, f"alpha_{when}", ".3f") for when in ("first", "last")),
            *(_over(seeds, f"spread_{when}", ".3f") for when in ("first", "last")),
            _over(seeds, "start_kept", ".2f"),
            str(seeds[0]["heads"]),
            _listed(seeds, "fell"),
            _listed(seeds, "turned"),
            turned,
        ]

    headers = ["mean α, first", "last", "deviation, first", "last", "first with last"]
    headers += ["heads", "fell", "then rose", "at"]
    table = _by_attention(kept, "training", headers, cells)
    return (
        f"{table}\n\nDeviation: over heads. First with last: their rank correlation over heads. Fell, "
        f"rose: by at least {MOVED}; seed by seed. At: median update of the turn."
    )


def _roles(systems: Systems) -> str:
    lines = []
    for measure, (_, threshold) in MEASURES.items():
        for name, system in systems.items():
            seeds = [seed[measure] for seed in system["roles"] if measure in seed]
            if seeds:
                best = max(seeds, key=lambda seed: seed["value"])
                where = f"{best['attention']} {best['layer']}.{best['head']}"
                lines.append(
                    [
                        measure,
                        name,
                        f"{threshold:g}",
                        _listed(seeds, "reached"),
                        _over(seeds, "value", ".3f"),
                        f"{best['value']:.3f}, {where}, α {best['alpha']:.2f}, density {best['density']:.2f}",
                    ]
                )
    headers = ["measure", "system", "from", "heads there", "best head's value", "best of all seeds"]
    return markdown(lines, headers)


def _pruning(systems: Systems) -> str:
    kept = {name: system["pruning"] for name, system in systems.items() if None not in system["pruning"]}
    if not kept:
        return ""
    shares = list(next(iter(next(iter(kept.values()))[0]["added"].values())))
    lines = []
    for name, seeds in kept.items():
        for i, order in enumerate(seeds[0]["added"]):
            if any(order not in seed["added"] for seed in seeds):
                continue
            first = [name, _over(seeds, "loss", ".3f"), _over(seeds, "most_important", ".3f")]
            costs = [spread((seed["added"][order][share] for seed in seeds), ".3f") for share in shares]
            correlation = spread((seed["correlation"].get("all") for seed in seeds), "+.2f")
            lines.append([*(first if i == 0 else [""] * 3), order, *costs, "" if i else correlation])
    headers = ["system", "loss", "dearest head", "pruned by"]
    headers += [f"{float(share):.0%} pruned" for share in shares] + ["rank correlation"]
    table = markdown(lines, headers)
    return (
        f"{table}\n\nNats per token: the loss of the whole model; what the loss rises by without its dearest "
        "head, and without a share of all heads. Correlation: of importance with density."
    )


def _by_attention(
    systems: Systems, finding: str, headers: list[str], cells: Callable[[list], list[str]]
) -> str:
    """A row for each attention type and system."""
    kinds = dict.fromkeys(kind for system in systems.values() for seed in system[finding] for kind in seed)
    lines = []
    for kind in kinds:
        for name, system in systems.items():
            seeds = [seed[kind] for seed in system[finding] if kind in seed]
            if seeds:
                lines.append([kind.replace("_", " "), name, *cells(seeds)])
    return markdown(lines, ["attention", "system", *headers])


def _over(seeds: list[dict], name: str, form: str) -> str:
    return spread((seed[name] for seed in seeds), form)


def _listed(seeds: list[dict], name: str) -> str:
    return ", ".join(str(seed[name]) for seed in seeds)
