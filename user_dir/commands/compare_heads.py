r"""Compare what the heads of several systems learned, over seeds: the paper's findings as tables.

    python scripts/compare_heads.py --system softmax RUNS/softmax-seed*/average.heads.json \
        --system α-entmax RUNS/alpha_entmax-seed*/average.heads.json

The files of a system are its seeds: statistics written by head_stats.py. Files beside them are used where
they exist: alpha.jsonl for α over training, and NAME.importance.json of head_importance.py for pruning.
"""

from __future__ import annotations

import argparse

from .options import add_output_option, add_system_argument, new_parser


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = new_parser(__doc__)
    add_system_argument(parser, "MODEL.heads.json", "may be repeated")
    add_output_option(parser)
    return parser.parse_args(argv)


def main(argv=None) -> None:
    """Read, ask, print, write."""
    args = parse_args(argv)

    from ..analysis.findings import findings
    from ..analysis.findings_tables import findings_tables
    from ..analysis.result_files import check_same_split, files_of, read_model
    from ..io import check_output
    from ..tables import table_files, write_tables

    given = [path for _, files in args.system for file in files for path in files_of(file)]
    for path in table_files(args.output):
        check_output(path, given)
    models = {name: list(map(read_model, files)) for name, files in args.system}
    check_same_split([model for each in models.values() for model in each])
    systems = {name: findings(each) for name, each in models.items()}
    tables = findings_tables(systems)
    files = {name: list(map(str, files)) for name, files in args.system}
    write_tables(args.output, tables, {"files": files, "systems": systems})
    print(tables)
