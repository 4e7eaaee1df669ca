"""Measure what the heads of a model learned: statistics of every head over a split, with teacher forcing.

Prints α, density and roles; writes all statistics as JSON, and those of heads as CSV beside it. The JSON
defines each statistic under "measures"; so does docs/analysis.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..command_line import file_path, option_adder, plain_name, positive
from .options import inputs_of, open_split, split_parser

BESIDE = Path("beside the checkpoint")  # of --dump-attention without a file


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = split_parser(__doc__)
    add = option_adder(parser)
    what = "statistics; the CSV is written beside it"
    default = "(default: CHECKPOINT.SUBSET.heads.json beside the checkpoint)"
    add("--output", file_path, f"{what} {default}", metavar="FILE.json")
    what = "of a language model: the language of the corpus to analyse it on (default: the second)"
    add("--language", plain_name, what)
    what = "how subwords form words: sentencepiece (▁), subword_nmt (@@) or none"
    add("--bpe", str, f"{what} (default: detected from the dictionary)", metavar="SCHEME")
    several = {"action": "append", "default": []}
    what = "interrogative words, one per line, instead of the built-in list"
    default = "LANGUAGE defaults to the source language; may be repeated"
    add("--interrogatives", str, f"{what}; {default}", metavar="[LANGUAGE=]FILE", **several)
    what = "minimum for a head to be assigned a role, such as 'previous position=0.9'; may be repeated"
    add("--threshold", str, what, metavar="ROLE=VALUE", **several)
    default = "CHECKPOINT.SUBSET.attention.npz beside the checkpoint, where report.py looks for them"
    what = f"also write attention maps (default: {default})"
    add("--dump-attention", file_path, what, nargs="?", const=BESIDE, metavar="FILE.npz")
    add("--dump-sentences", positive, "write the maps of the first N sentences (default: 50)", default=50)
    args = parser.parse_args(argv)
    if args.output and args.output.suffix != ".json":
        parser.error(f"--output {args.output} must end in .json; the CSV is written beside it")
    if args.dump_attention not in (None, BESIDE) and args.dump_attention.suffix != ".npz":
        parser.error(f"--dump-attention {args.dump_attention} must end in .npz")
    return args


def read_word_lists(given: list[str], source: str, target: str) -> dict[str, frozenset[str]]:
    """The lists of ``--interrogatives`` by language."""
    from ..analysis.words import read_interrogatives
    from ..errors import UserError

    lists = {}
    for each in given:
        language, equals, path = each.rpartition("=")
        language = language if equals else source
        if language not in (source, target):
            raise UserError(f"--interrogatives {each}: the model's languages are {source} and {target}")
        lists[language] = read_interrogatives(path)
    return lists


def main(argv=None) -> None:
    """Read the command line, compute and write, print."""
    args = parse_args(argv)

    from ..analysis.result_files import result_file
    from ..corpora import load_corpus
    from ..io import check_outputs

    args.subset = load_corpus(args.corpus, args.data).split(args.subset)
    output, maps = args.output or result_file(args.path, args.subset, "heads.json"), args.dump_attention
    if maps == BESIDE:
        maps = result_file(args.path, args.subset, "attention.npz")
    lists = [Path(each.rpartition("=")[2]) for each in args.interrogatives]
    written = [output, output.with_suffix(".csv"), *([maps] if maps else [])]
    check_outputs(written, [*inputs_of(args), *lists])
    split = open_split(args)

    from ..analysis.results import write_statistics
    from ..analysis.summaries import statistics_summary

    lists = read_word_lists(args.interrogatives, *split.direction)
    report = write_statistics(
        split,
        output,
        scheme=args.bpe,
        interrogatives=lists,
        thresholds=args.threshold,
        maps=maps,
        map_sentences=args.dump_sentences,
    )
    print(statistics_summary(report, output, maps, args.dump_sentences, lists))
