"""Average the parameters of several checkpoints of one training run.

    python scripts/average.py --path checkpoints/toy/alpha_entmax --last-epochs 5

writes checkpoints/toy/alpha_entmax/average.pt.
"""

from __future__ import annotations

from pathlib import Path

from .options import Parser, positive


def main(argv=None) -> None:
    """Read the command line, average and write."""
    parser = Parser(__doc__)
    what = "checkpoints to average; with --last-epochs the folder that holds them"
    parser.add("--path", Path, what, nargs="+", required=True, metavar="CHECKPOINT")
    what = "average the N latest checkpoints of the folder, at the ends of epochs and at the last update"
    parser.add("--last-epochs", positive, what)
    parser.add_switch("--ema", "average the moving averages that training with --store-ema keeps")
    what = "averaged checkpoint (default: average.pt in the folder of the checkpoints)"
    parser.add("--output", Path, what)
    args = parser.parse_args(argv)
    paths, folder = args.path, args.path[0]
    if args.last_epochs is None:
        if folder.is_dir():
            parser.error(f"{folder} is a folder: give --last-epochs N, or checkpoints")
        folder = folder.parent
    elif len(paths) > 1:
        parser.error("--last-epochs takes one folder")
    output = args.output or folder / "average.pt"

    from ..checkpoints import average_checkpoints, last_checkpoints, save_checkpoint
    from ..files import check_output

    if args.last_epochs is not None:
        paths = last_checkpoints(folder, args.last_epochs)
    check_output(output, paths)
    save_checkpoint(average_checkpoints(paths, args.ema), output)
    kind = "the moving averages of " if args.ema else ""
    print(f"{output}: the mean of {kind}{', '.join(map(str, paths))}")
