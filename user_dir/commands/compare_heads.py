r"""Compare what the heads of several systems learned, over seeds: α, density and diversity as a table.

    python scripts/compare_heads.py --system softmax RUNS/softmax-seed*/average.heads.json \
        --system α-entmax RUNS/alpha_entmax-seed*/average.heads.json

The files of a system are its seeds: statistics written by head_stats.py.
"""

from __future__ import annotations

from .options import add_output_option, add_system_argument, new_parser


def main(argv=None) -> None:
    """Read, ask, print, write."""
    parser = new_parser(__doc__)
    add_system_argument(parser, "MODEL.heads.json", "may be repeated")
    add_output_option(parser)
    args = parser.parse_args(argv)

    from ..analysis.results import check_same_split, comparison_table, read_statistics, summary
    from ..files import check_output, write_json, write_text

    files = [path for _, paths in args.system for path in paths]
    if args.output:
        check_output(args.output, files)
    reports = {path: read_statistics(path) for path in files}
    check_same_split((path, report.get("corpus"), report.get("subset")) for path, report in reports.items())
    systems = {name: [summary(reports[path]) for path in paths] for name, paths in args.system}
    table = comparison_table(systems)
    if args.output:
        named = {name: list(map(str, paths)) for name, paths in args.system}
        write_text(args.output, table + "\n")
        write_json(args.output.with_suffix(".json"), {"files": named, "systems": systems})
    print(table)
