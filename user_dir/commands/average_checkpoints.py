"""Average the parameters of several checkpoints of one training run.

    python scripts/average_checkpoints.py --path checkpoints/toy/alpha_entmax --last-epochs 5

writes checkpoints/toy/alpha_entmax/average.pt.
"""

from __future__ import annotations

import argparse

from .options import file_path, new_parser, option_adder, path_of, positive


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = new_parser(__doc__)
    add = option_adder(parser)
    what = "checkpoints to average; with --last-epochs the folder that holds them"
    add("--path", path_of, what, nargs="+", required=True, metavar="CHECKPOINT")
    what = "average the N latest checkpoints of the folder, at the ends of epochs and at the last update"
    add("--last-epochs", positive, what)
    what = "average the moving averages that training with --store-ema keeps"
    parser.add_argument("--ema", action="store_true", help=what)
    default = "average.pt in the folder of the checkpoints"
    add("--output", file_path, f"averaged checkpoint (default: {default})")
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
    from ..files import check_output

    paths = args.path
    if args.last_epochs is not None:
        paths = last_checkpoints(paths[0], args.last_epochs)
    check_output(args.output, paths)
    save_checkpoint(average_checkpoints(paths, args.ema), args.output)
    kind = "the moving averages of " if args.ema else ""
    print(f"{args.output}: the mean of {kind}{', '.join(map(str, paths))}")
