"""Write the head report: an HTML page about what the heads of one model, or of several, learned.

The page is a single file that needs no network. It shows α over training, histograms of α and of density,
density and diversity by layer, the roles of heads, and the attention of every head on single sentences.

Each --path (or --statistics) starts a model; the options after it, up to the next, belong to that model.
For a checkpoint DIR/NAME.pt the page uses DIR/NAME.SUBSET.heads.json and DIR/NAME.SUBSET.attention.npz,
which head_stats.py writes, and DIR/alpha.jsonl, which --alpha-log writes, where they exist. With --corpus,
the first two are computed for every checkpoint for which they are missing, older than it, or of fewer
sentences than the page needs. For instance:

  report.py --path softmax/average.pt --name softmax --path entmax/average.pt --name α-entmax \\
            --corpus multi30k --output report.html
"""

from __future__ import annotations

import argparse
import glob
import logging
from pathlib import Path

from ..command_line import file_path, option_adder, plain_name, positive
from .options import add_cpu_option, add_data_option, add_subset_option, new_parser


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
    parser = new_parser(__doc__)
    add = option_adder(parser)
    begin, of = {"action": BeginModel}, {"action": OfModel}
    what = "checkpoint of a model; the options after it belong to it"
    add("--path", file_path, what, metavar="CHECKPOINT", **begin)
    what = "statistics of a model, instead of its checkpoint"
    add("--statistics", file_path, what, metavar="NAME.heads.json", **begin)
    add("--alpha-log", file_path, "α log of the model (default: see above)", **of)
    add("--maps", file_path, "attention maps of the model (default: see above)", metavar="FILE.npz", **of)
    add("--name", str, "name of the model (default: its folder and file)", metavar="NAME", **of)
    add("--corpus", plain_name, "prepared corpus on which to compute missing files")
    add_subset_option(parser)
    add_data_option(parser)
    add_cpu_option(parser)
    add(
        "--sentences",
        positive,
        "show the first N sentences, with statistics of all (default: 50)",
        default=50,
    )
    what = "also show gradient times input, value zeroing and attention rollout beside the attention maps"
    parser.add_argument("--attribution", action="store_true", help=f"{what}; takes --path and --corpus")
    what = "report (default, for one model: CHECKPOINT.SUBSET.report.html beside the checkpoint)"
    add("--output", file_path, what, metavar="FILE.html")
    parser.set_defaults(models=None)
    args = parser.parse_args(argv)
    if not args.models:
        parser.error("give at least one model, by --path CHECKPOINT or --statistics FILE")
    if args.attribution and (not args.corpus or not all("path" in model for model in args.models)):
        parser.error("--attribution computes with the models: give each by --path, and --corpus")
    if args.output is None and len(args.models) > 1:
        parser.error("several models side by side: give --output FILE.html")
    if args.output is not None and args.output.suffix != ".html":
        parser.error(f"--output {args.output} must end in .html")
    return args


def name_files(model: argparse.Namespace, subset: str) -> None:
    """Fill in the files of a model that were not given; ``source`` is the option that started it."""
    from ..analysis.result_files import beside, log_beside, result_file

    given = vars(model)
    model.path, statistics = given.get("path"), given.get("statistics")
    model.source = model.path or statistics
    model.statistics = statistics or result_file(model.path, subset, "heads.json")
    model.report = beside(model.statistics, "report.html")
    model.maps_given = "maps" in given
    model.maps = given.get("maps") or beside(model.statistics, "attention.npz")
    model.alpha_log = given.get("alpha_log") or log_beside(model.statistics)


def files_of(model: argparse.Namespace) -> list[Path]:
    """The files of a model that the report reads."""
    files = (model.path, model.statistics, model.statistics.with_suffix(".csv"), model.maps, model.alpha_log)
    return [each for each in files if each is not None]


def require_statistics(model: argparse.Namespace, subset: str) -> None:
    """Raise a UserError that says what to do unless the statistics of a model exist."""
    from ..errors import UserError
    from ..packed_folders import there

    if there(model.statistics):
        return
    if model.path is None:
        raise UserError(f"there are no statistics {model.statistics}")
    remedy = "give --corpus to compute them"
    others = sorted(model.path.parent.glob(f"{glob.escape(model.path.stem)}*.heads.json*"))
    if others:
        remedy += f", or take others by --statistics: {', '.join(map(str, others))}"
    raise UserError(f"there are no statistics of {model.path} on {subset}: {model.statistics}; {remedy}")


def compute(model: argparse.Namespace, args: argparse.Namespace) -> None:
    """Compute a model's statistics and maps unless they exist already."""
    from ..analysis.results import statistics_are_current, write_statistics
    from ..analysis.split import open_split
    from ..analysis.summaries import statistics_summary
    from ..corpora import load_corpus
    from ..io import check_outputs

    maps = None if model.maps_given else model.maps
    written = [model.statistics, model.statistics.with_suffix(".csv"), *([maps] if maps else [])]
    given = (model.path, model.alpha_log, model.maps if model.maps_given else None)
    check_outputs(written, filter(None, given), "--path")
    corpus = load_corpus(args.corpus, args.data).require_prepared()
    if statistics_are_current(model.statistics, maps, model.path, corpus, args.subset, args.sentences):
        return
    split = open_split(model.path, corpus, args.subset, cpu=args.cpu)
    report = write_statistics(split, model.statistics, maps=maps, map_sentences=args.sentences)
    print(statistics_summary(report, model.statistics, maps, args.sentences))


def attributed(analysis, path: Path, args: argparse.Namespace):
    """The analysis of a model with attributions of the sentences that the page shows."""
    from ..analysis.attribution import with_attribution
    from ..analysis.split import open_split

    split = open_split(path, args.corpus, args.subset, data=args.data, cpu=args.cpu)
    return with_attribution(analysis, split, args.sentences)


def main(argv=None) -> None:
    """Read the command line, compute what is missing, write the page."""
    args = parse_args(argv)

    from ..analysis.report import write_report
    from ..analysis.result_files import check_same_split, model_names, read_results
    from ..errors import UserError
    from ..io import check_output

    logging.getLogger("fairseq").setLevel(logging.WARNING)
    if args.corpus:
        from ..corpora import load_corpus

        args.subset = load_corpus(args.corpus, args.data).split(args.subset)
    for model in args.models:
        name_files(model, args.subset)
    output = args.output or args.models[0].report
    given = [each for model in args.models for each in files_of(model)]
    check_output(output, given)
    for model in args.models:
        if model.path and not model.path.is_file():
            raise UserError(f"no checkpoint {model.path}")
        if model.path and args.corpus:
            compute(model, args)
        require_statistics(model, args.subset)
    names = model_names(
        [model.source for model in args.models], [getattr(m, "name", None) for m in args.models]
    )
    models = [
        read_results(
            name,
            model.statistics,
            model.alpha_log,
            model.maps if model.maps_given or model.maps.is_file() else None,
        )
        for name, model in zip(names, args.models)
    ]
    check_same_split(models)
    if args.attribution:
        models = [attributed(each, model.path, args) for each, model in zip(models, args.models)]
    write_report(models, output, args.sentences)
    print(f"head report of {', '.join(names)}: {output}")
