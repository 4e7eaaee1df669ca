"""Average the parameters of several checkpoints of one training run.

    python scripts/average_checkpoints.py --path checkpoints/toy/alpha_entmax --last-epochs 5 --greedy

writes checkpoints/toy/alpha_entmax/average.pt. With --greedy, the mean begins with the checkpoint of the
lowest perplexity on the validation set, and takes of the others, best first, those that lower its own. With
sparse outputs it is the loss instead.
"""

from __future__ import annotations

import argparse
import logging
import math
from pathlib import Path

from ..command_line import checkpoint_path, option_adder, path_of, plain_name, positive
from .options import add_cpu_option, add_data_option, new_parser


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = new_parser(__doc__)
    add = option_adder(parser)
    what = "checkpoints to average; with --last-epochs the folder that holds them"
    add("--path", path_of, what, nargs="+", required=True, metavar="CHECKPOINT")
    what = "average the N latest checkpoints of the folder, at the ends of epochs and at the last update"
    add("--last-epochs", positive, what)
    what = "average the moving averages that training with --store-ema keeps"
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--ema", action="store_true", help=what)
    way.add_argument(
        "--greedy", action="store_true", help="leave out what validation does not want (see above)"
    )
    add("--corpus", plain_name, "of --greedy (default: the one that the checkpoint names)")
    add_data_option(parser)
    add_cpu_option(parser)
    default = "average.pt in the folder of the checkpoints"
    add("--output", checkpoint_path, f"averaged checkpoint (default: {default})")
    args = parser.parse_args(argv)
    folder = args.path[0]
    if args.last_epochs is None:
        if folder.is_dir():
            parser.error(f"{folder} is a folder: give --last-epochs N, or checkpoints")
        folder = folder.parent
    elif len(args.path) > 1:
        parser.error("--last-epochs takes one folder")
    args.output = args.output or folder / "average.pt"
    return args


def main(argv=None) -> None:
    """Average and write."""
    args = parse_args(argv)

    from ..checkpoints import average_checkpoints, last_checkpoints, save_checkpoint
    from ..io import check_output

    paths = args.path
    if args.last_epochs is not None:
        paths = last_checkpoints(paths[0], args.last_epochs)
    check_output(args.output, paths)
    if args.greedy:
        save_checkpoint(greedy(paths, args), args.output)
        return
    save_checkpoint(average_checkpoints(paths, args.ema), args.output)
    kind = "the moving averages of " if args.ema else ""
    print(f"{args.output}: the mean of {kind}{', '.join(map(str, paths))}")


def greedy(paths: list[Path], args: argparse.Namespace) -> dict:
    """The mean of those checkpoints that validation wants; prints which, and what came of it."""
    from ..analysis.greedy_average import greedy_average
    from ..checkpoint_settings import model_settings
    from ..checkpoints import load_checkpoint
    from ..translation.direction import corpus_of

    logging.getLogger("fairseq").setLevel(logging.WARNING)
    corpus = corpus_of(load_checkpoint(paths[0]), paths[0], args.corpus, args.data)
    mean, chosen = greedy_average(paths, corpus, cpu=args.cpu)
    print(f"{args.output}: the mean of {', '.join(map(str, chosen))}")
    losses, settings, what = [*chosen.values()], model_settings(mean), "perplexity"
    if all((settings.get(name) or 1) == 1 for name in ("output_alpha", "output_alpha_start")):
        losses = [*map(math.exp, losses)]
    else:  # a word of the reference may have the probability 0
        what = "loss"
    print(f"{what} on the validation set: {losses[-1]:.3f}, of the best alone {losses[0]:.3f}")
    return mean
