#!/usr/bin/env python3
"""What the heads of a model learned: every statistic of every head over a data split, with teacher forcing.

Prints α, density and roles; writes all columns as JSON, and the rows of the heads as CSV beside it. What each
column means is in the JSON under "measures", and in docs/analysis.md.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import sys
from pathlib import Path

from _split import open_split, positive, rounded, split_parser

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = split_parser(__doc__)
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE.json",
        help="default: CHECKPOINT with .heads.json; the CSV is beside it",
    )
    parser.add_argument(
        "--bpe",
        metavar="SCHEME",
        help="how pieces make words: sentencepiece (▁), subword_nmt (@@) or none; by default as the "
        "dictionary looks",
    )
    parser.add_argument(
        "--interrogatives",
        action="append",
        default=[],
        metavar="[LANGUAGE=]FILE",
        help="interrogative words, one a line, in the place of our list; of the source language if none is "
        "named; may be given several times",
    )
    parser.add_argument(
        "--threshold",
        action="append",
        default=[],
        metavar="ROLE=VALUE",
        help="least value for a head to have a role, for instance 'previous position=0.9'; may be given "
        "several times",
    )
    parser.add_argument(
        "--dump-attention", type=Path, metavar="FILE.npz", help="also write the attention maps of sentences"
    )
    parser.add_argument(
        "--dump-sentences",
        type=positive,
        default=50,
        metavar="N",
        help="of the first N sentences (default: 50)",
    )
    args = parser.parse_args(argv)
    args.output = args.output or args.path.with_suffix(".heads.json")
    if args.output.suffix != ".json":
        parser.error(f"--output {args.output} must end in .json; the CSV is written beside it")
    if args.dump_attention and args.dump_attention.suffix != ".npz":
        parser.error(f"--dump-attention {args.dump_attention} must end in .npz")
    return args


def read_word_lists(given: list[str], source: str, target: str) -> dict[str, frozenset[str]]:
    """The lists of ``--interrogatives`` by language."""
    from user_dir.analysis.words import read_interrogatives
    from user_dir.errors import UserError

    lists = {}
    for each in given:
        language, equals, path = each.rpartition("=")
        language = language if equals else source
        if language not in (source, target):
            raise UserError(f"--interrogatives {each}: the model's languages are {source} and {target}")
        lists[language] = read_interrogatives(path)
    return lists


def table_of(heads: list[dict]) -> str:
    """The rows of the heads as CSV, without what is a list; roles are joined by semicolons."""
    rows = [
        {name: value for name, value in row.items() if not isinstance(value, list)}
        | {"roles": "; ".join(row["roles"])}
        for row in heads
    ]
    table = io.StringIO()
    writer = csv.DictWriter(table, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return table.getvalue()


def main(argv=None) -> None:
    """Read the command line, compute, print and write."""
    args = parse_args(argv)
    split = open_split(args)

    from user_dir.analysis.capture import batches
    from user_dir.analysis.dump import MapsDump
    from user_dir.analysis.maps import maps_writer
    from user_dir.analysis.roles import assign_roles, with_thresholds
    from user_dir.analysis.statistics import COLUMNS, LAYER_COLUMNS, head_statistics
    from user_dir.analysis.tables import head_table, role_table
    from user_dir.analysis.words import Pieces
    from user_dir.io import write_json, write_text

    roles = with_thresholds(args.threshold)
    source, target = split.report["source_lang"], split.report["target_lang"]
    lists = read_word_lists(args.interrogatives, source, target)
    pieces = [
        Pieces(dictionary, language, args.bpe, lists.get(language))
        for dictionary, language in (
            (split.task.source_dictionary, source),
            (split.task.target_dictionary, target),
        )
    ]
    samples = batches(
        split.model,
        split.task,
        split.subset,
        max_tokens=args.max_tokens,
        sentences=args.sentences,
        in_order=args.dump_attention is not None,
    )
    with contextlib.ExitStack() as stack:
        dump = None
        if args.dump_attention:
            texts = split.corpus.text(split.subset, source).read_text(encoding="utf-8").split("\n")
            writer = stack.enter_context(maps_writer(args.dump_attention))
            dump = MapsDump(writer, split.task, args.dump_sentences, texts)
        padding = split.task.source_dictionary.pad()
        statistics = head_statistics(split.model, samples, *pieces, padding, dump)

    report = {**split.report, "bpe": pieces[0].scheme, **statistics}
    report["roles"] = assign_roles(report["heads"], roles)
    report["measures"] = {**COLUMNS, **LAYER_COLUMNS}
    report = rounded(report)
    write_json(args.output, report)
    write_text(args.output.with_suffix(".csv"), table_of(report["heads"]))

    print(head_table(report["heads"]))
    print(role_table(report["roles"]))
    for language, kind in zip((source, target), pieces):
        if kind.interrogatives is None:
            print(f"no list of interrogative words for {language!r}: give --interrogatives {language}=FILE")
    print()
    if args.dump_attention:
        print(f"attention maps of {writer.sentences} sentences: {args.dump_attention}")
    print(
        f"head report over {report['sentences']} sentences: {args.output} and "
        f"{args.output.with_suffix('.csv').name}"
    )


if __name__ == "__main__":
    main()
