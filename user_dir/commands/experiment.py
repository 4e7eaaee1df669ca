"""Run an experiment: train, average, evaluate and analyse the heads of each run; print tables of the results.

    python scripts/experiment.py experiments/comparison.yaml --only 'de-en-*-seed1'

What the runs need (in the plan, under before) is made first: corpora, pretrained models, triplets.
Finished runs are skipped, interrupted ones resume from their last checkpoint, and runs made with different
settings are refused. If a run fails, the others continue and the exit status is 1. Several processes can work
on one experiment; each run is locked while a process works on it. The folder of a run keeps the averaged
checkpoint and logs; scores, translations, α and statistics of heads are copied to experiments/records. A run
that is recorded there counts as finished on every machine.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from pathlib import Path

from ..checkout import ROOT
from ..command_line import file_path, option_adder, path_of, positive
from .options import add_output_option, new_parser

INTERRUPTED = "interrupted; the same command resumes the experiment"


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = new_parser(__doc__)
    add = option_adder(parser)
    add("plan", file_path, "experiment, such as experiments/comparison.yaml", metavar="FILE.yaml")
    what = "only runs whose NAME-seedN matches, such as '*-seed1'; may be repeated"
    add("--only", str, what, action="append", default=[], metavar="PATTERN")
    what = (
        "processes that train each run together, such as one per core or GPU; they share the batches of an "
        "update (optimization.update_freq), which stays as large as with one (default: 1)"
    )
    add("--workers", positive, what, default=1)
    what = "print the state of each run and exit"
    parser.add_argument("--list", "--dry-run", action="store_true", help=what)
    add_output_option(parser)
    what = "folder of the runs (default: checkpoints/experiments in the repository)"
    add("--folder", path_of, what, default=ROOT / "checkpoints" / "experiments")
    what = "give an empty one to repeat all runs (default: experiments/records in the repository)"
    add("--records", path_of, f"folder of the results; {what}", default=ROOT / "experiments" / "records")
    return parser.parse_args(argv)


def main(argv=None) -> None:
    """Check all runs, make them, print and write the tables."""
    args = parse_args(argv)

    from ..errors import UserError
    from ..experiments.folders import state
    from ..experiments.plan import read_plan, read_steps, select
    from ..experiments.settings import plain_settings
    from ..experiments.steps import make_steps
    from ..io import check_outputs
    from ..tables import table_files

    logging.getLogger("fairseq").setLevel(logging.WARNING)
    for end in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(end) != signal.SIG_IGN:  # as nohup has it
            signal.signal(end, lambda number, _: sys.exit(128 + number))  # so that what is being run ends too
    check_outputs(table_files(args.output), [args.plan, args.records])
    runs = select(read_plan(args.plan, ROOT), args.only)
    steps = read_steps(args.plan)
    shared = args.workers > 1 and not args.list
    if shared:  # before the steps, which may take hours
        check_workers({run: plain_settings(run.config.resolve(), run.overrides) for run in runs}, args)
    if steps and not args.list and not all_recorded(runs, args):
        folder = args.folder.resolve() / args.plan.stem / "before"
        make_steps(steps, ROOT, folder, lambda line: print(line, flush=True))
    jobs, failed, elsewhere = [], {}, []
    for run in runs:
        try:
            jobs.append(job_of(run, args))
        except UserError as error:
            if not args.list:
                raise
            print(f"{run.label:<40} cannot be made: {error}")
        else:
            if args.list:
                print(f"{run.label:<40} {state(jobs[-1])}")
    if shared:  # also of settings that only fairseq composes
        check_workers({job.run: job.settings["config"] for job in jobs}, args)
    if not args.list:
        from ..experiments.running import run_all  # imports fairseq and torch

        failed, elsewhere = run_all(jobs, lambda line: print(line, flush=True), args.workers)
    failed |= report(jobs, [run.label for run in runs], args.output)
    for label in elsewhere:
        print(f"{label}: another process is at it")
    if failed:
        print(f"{len(failed)} of {len(runs)} runs failed:", file=sys.stderr)
        sys.exit("\n".join(f"  {label}: error: {reason}" for label, reason in failed.items()))


def job_of(run, args: argparse.Namespace):
    """A run with its folders; raises UserError if it cannot be made."""
    from ..experiments.folders import open_job

    return open_job(run, ROOT, args.folder.resolve(), args.records.resolve())


def all_recorded(runs: list, args: argparse.Namespace) -> bool:
    """Whether every run has a record, so that nothing needs to be made before them."""
    from ..errors import UserError
    from ..experiments.folders import is_recorded

    try:
        return all(is_recorded(job_of(run, args)) for run in runs)
    except UserError:  # reported when the runs are made
        return False


def check_workers(configs: dict, args: argparse.Namespace) -> None:
    """Raise UserError unless the workers can share the batches of every run that is still to be trained.

    ``configs`` has the settings of each run; None if they are not known yet.
    """
    from ..errors import UserError
    from ..experiments.folders import RESULT, read_json
    from ..experiments.training_stages import check_workers as check
    from ..packed_folders import there

    for run, config in configs.items():
        place = Path(run.experiment, run.label)
        trained = args.folder / place / "training.json"
        if config is None or there(args.records / place / RESULT):
            continue
        try:
            if not (trained.is_file() and read_json(trained).get("done")):
                check(config, args.workers)
        except UserError as error:
            raise UserError(f"{run.label}: {error}") from None
        except (AttributeError, TypeError):  # not yet validated; refused when the run is opened
            continue


def report(jobs: list, labels: list[str], table: Path | None) -> dict[str, str]:
    """Print the tables of the runs that are done; with ``table``, write them, and which are missing.

    Returns what is wrong with results that cannot be read, by label.
    """
    from ..errors import UserError
    from ..experiments.folders import RESULT, is_recorded
    from ..experiments.result_tables import experiment_tables, read_result
    from ..tables import write_tables

    results, missing, corrupt = [], list(labels), {}
    for job in jobs:
        try:
            recorded = is_recorded(job)
        except UserError:  # of other settings, as the list or the failed runs tell
            recorded = False
        if not recorded:
            continue
        try:
            results.append(read_result(job.record / RESULT))
            missing.remove(job.run.label)
        except UserError as error:
            corrupt[job.run.label] = str(error)
    tables = experiment_tables(results)
    write_tables(table, tables, {"missing": missing, "runs": results})
    print("\n" + tables if results else "no run is done")
    return corrupt
