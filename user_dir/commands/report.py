"""Write the head report: an HTML page about what the heads of one model, or of several, learned.

The page is a single file that needs no network. It shows α over training, histograms of α and of density,
density and diversity by layer, the roles of heads, and the attention of every head on single sentences.

For a checkpoint DIR/NAME.pt the page uses DIR/NAME.SUBSET.heads.json and DIR/NAME.SUBSET.attention,
which heads.py writes, and DIR/alpha.jsonl, which --alpha-log writes, where they exist. With --corpus,
statistics and maps are computed for every checkpoint for which they are missing or older than it, or if
there are maps of fewer sentences than the page needs. For instance:

  report.py --path softmax/average.pt --name softmax --path entmax/average.pt --name α-entmax \\
            --corpus multi30k --output report.html
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from .options import Parser, plain_name, positive


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(__doc__)
    many = {"action": "append", "default": []}
    parser.add("--path", Path, "checkpoint of a model; may be repeated", metavar="CHECKPOINT", **many)
    what = "statistics of a model, instead of its checkpoint; may be repeated"
    parser.add("--statistics", Path, what, metavar="NAME.heads.json", **many)
    what = "name of each model, in the same order (default: its folder and file)"
    parser.add("--name", str, what, metavar="NAME", **many)
    parser.add("--corpus", plain_name, "prepared corpus on which to compute missing files")
    parser.add_subset_option()
    parser.add_data_option()
    parser.add_cpu_option()
    what = "show the first N sentences, with statistics of all (default: 50)"
    parser.add("--sentences", positive, what, default=50)
    what = "report (default, for one model: CHECKPOINT.SUBSET.report.html beside the checkpoint)"
    parser.add("--output", Path, what, metavar="FILE.html")
    args = parser.parse_args(argv)
    models = len(args.path) + len(args.statistics)
    if not models:
        parser.error("give at least one model, by --path CHECKPOINT or --statistics FILE")
    if args.output is None and models > 1:
        parser.error("several models side by side: give --output FILE.html")
    if args.output is not None and args.output.suffix != ".html":
        parser.error(f"--output {args.output} must end in .html")
    return args


def main(argv=None) -> None:
    """Read the command line, compute what is missing, write the page."""
    args = parse_args(argv)

    from ..analysis import results
    from ..analysis.report import write_report
    from ..errors import UserError
    from ..files import check_output

    logging.getLogger("fairseq").setLevel(logging.WARNING)
    if args.corpus:
        from ..analysis.capture import open_split
        from ..analysis.measuring import statistics_are_current, write_statistics
        from ..corpora import load_corpus

        args.subset = load_corpus(args.corpus, args.data).split(args.subset)
    statistics = [results.result_file(path, args.subset, "heads.json") for path in args.path]
    statistics += args.statistics
    maps = [results.beside(file, "attention") for file in statistics]
    logs = list(map(results.log_beside, statistics))
    names = results.model_names([*args.path, *args.statistics], args.name)
    output = args.output or results.beside(statistics[0], "report.html")
    check_output(output, [*args.path, *filter(None, [*statistics, *logs, *maps])])
    corpus, shown = args.corpus, args.sentences
    for checkpoint, file, folder in zip(args.path, statistics, maps):
        if corpus and not statistics_are_current(file, folder, checkpoint, corpus, shown):
            # of a language model that was measured before, in the same language
            language = results.read_statistics(file).get("target_lang") if file.is_file() else None
            options = {"data": args.data, "language": language, "cpu": args.cpu}
            split = open_split(checkpoint, corpus, args.subset, **options)
            write_statistics(split, file, maps=folder, map_sentences=shown)
        elif not file.is_file():
            raise UserError(f"there are no statistics {file}; give --corpus to compute them")
    maps = [folder if folder.is_dir() else None for folder in maps]
    models = list(map(results.read_model, names, statistics, logs, maps))
    results.check_models(models)
    write_report(models, output, shown)
    print(f"head report of {', '.join(names)}: {output}")
