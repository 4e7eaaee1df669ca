"""Write the head report: an HTML page about what the heads of one model, or of several, learned.

The page is a single file that needs no network. It shows α over training, histograms of α and of density,
density and diversity by layer, the roles of heads, and the attention of every head on single sentences.

Each --path (or --statistics) starts a model; the options after it, up to the next, belong to that model.
For a checkpoint DIR/NAME.pt the page uses DIR/NAME.SUBSET.heads.json and DIR/NAME.SUBSET.attention,
which heads.py writes, and DIR/alpha.jsonl, which --alpha-log writes, where they exist. With --corpus,
the first two are computed for every checkpoint for which they are missing, older than it, or, the maps, of
fewer sentences than the page needs. For instance:

  report.py --path softmax/average.pt --name softmax --path entmax/average.pt --name α-entmax \\
            --corpus multi30k --output report.html
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from .options import Parser, plain_name, positive


class BeginModel(argparse.Action):
    """An option that starts a model."""

    def __call__(self, parser, namespace, values, option_string=None):
        """Append a model with this option alone."""
        namespace.models = [*(namespace.models or []), argparse.Namespace(**{self.dest: values})]


class OfModel(argparse.Action):
    """An option of the model started last."""

    def __call__(self, parser, namespace, values, option_string=None):
        """Set it there."""
        if not namespace.models:
            parser.error(f"{option_string} belongs to a model: give it after --path or --statistics")
        setattr(namespace.models[-1], self.dest, values)


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(__doc__)
    begin, of = {"action": BeginModel}, {"action": OfModel}
    what = "checkpoint of a model; the options after it belong to it"
    parser.add("--path", Path, what, metavar="CHECKPOINT", **begin)
    what = "statistics of a model, instead of its checkpoint"
    parser.add("--statistics", Path, what, metavar="NAME.heads.json", **begin)
    parser.add("--alpha-log", Path, "α log of the model (default: see above)", **of)
    parser.add("--maps", Path, "attention maps of the model (default: see above)", metavar="DIR", **of)
    parser.add("--name", str, "name of the model (default: its folder and file)", metavar="NAME", **of)
    parser.add("--corpus", plain_name, "prepared corpus on which to compute missing files")
    parser.add_subset_option()
    parser.add_data_option()
    parser.add_cpu_option()
    what = "show the first N sentences, with statistics of all (default: 50)"
    parser.add("--sentences", positive, what, default=50)
    what = "report (default, for one model: CHECKPOINT.SUBSET.report.html beside the checkpoint)"
    parser.add("--output", Path, what, metavar="FILE.html")
    parser.set_defaults(models=None)
    args = parser.parse_args(argv)
    if not args.models:
        parser.error("give at least one model, by --path CHECKPOINT or --statistics FILE")
    if args.output is None and len(args.models) > 1:
        parser.error("several models side by side: give --output FILE.html")
    if args.output is not None and args.output.suffix != ".html":
        parser.error(f"--output {args.output} must end in .html")
    return args


def files_of(model: argparse.Namespace, subset: str) -> tuple[Path, Path | None, Path]:
    """The statistics, α log and maps of a model: those of its options, or else where they are written."""
    from ..analysis.results import beside, log_beside, result_file

    options = vars(model)
    statistics = options.get("statistics") or result_file(model.path, subset, "heads.json")
    log = options.get("alpha_log") or log_beside(statistics)
    return statistics, log, options.get("maps") or beside(statistics, "attention")


def compute(model: argparse.Namespace, args: argparse.Namespace, statistics: Path, maps: Path) -> None:
    """Compute a model's statistics and maps unless they exist already."""
    from ..analysis.capture import open_split
    from ..analysis.measuring import statistics_are_current, statistics_summary, write_statistics

    maps = None if "maps" in model else maps
    if not statistics_are_current(statistics, maps, model.path, args.sentences):
        split = open_split(model.path, args.corpus, args.subset, data=args.data, cpu=args.cpu)
        report = write_statistics(split, statistics, maps=maps, map_sentences=args.sentences)
        print(statistics_summary(report, statistics, maps))


def main(argv=None) -> None:
    """Read the command line, compute what is missing, write the page."""
    args = parse_args(argv)

    from ..analysis.report import write_report
    from ..analysis.results import beside, check_models, model_names, read_model
    from ..errors import UserError
    from ..files import check_output

    logging.getLogger("fairseq").setLevel(logging.WARNING)
    if args.corpus:
        from ..corpora import load_corpus

        args.subset = load_corpus(args.corpus, args.data).split(args.subset)
    files = [files_of(model, args.subset) for model in args.models]
    output = args.output or beside(files[0][0], "report.html")
    check_output(output, [path for paths in files for path in paths if path])
    for model, (statistics, _, maps) in zip(args.models, files):
        if "path" in model and args.corpus:
            compute(model, args, statistics, maps)
        elif "path" in model and not statistics.is_file():
            raise UserError(f"there are no statistics {statistics}; give --corpus to compute them")
    sources = [getattr(model, "path", None) or model.statistics for model in args.models]
    names = model_names(sources, [getattr(model, "name", None) for model in args.models])
    models = []
    for name, model, (statistics, log, maps) in zip(names, args.models, files):
        models.append(read_model(name, statistics, log, maps if "maps" in model or maps.is_dir() else None))
    check_models(models)
    write_report(models, output, args.sentences)
    print(f"head report of {', '.join(names)}: {output}")
