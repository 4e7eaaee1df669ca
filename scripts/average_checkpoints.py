#!/usr/bin/env python3
"""Average the parameters of several checkpoints of one training into one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from user_dir.command_line import file_path, path_of, run_command


def main(argv=None) -> None:
    """Read the command line, average, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "inputs", nargs="+", type=path_of, help="checkpoints; or one folder of them, with --last-epochs"
    )
    parser.add_argument(
        "--last-epochs", type=int, metavar="N", help="the N latest epoch checkpoints of the folder"
    )
    parser.add_argument(
        "--ema", action="store_true", help="of each, the moving average that training with --store-ema kept"
    )
    parser.add_argument("--output", type=file_path, required=True, help="the averaged checkpoint")
    args = parser.parse_args(argv)

    if args.last_epochs is not None and len(args.inputs) != 1:
        parser.error("--last-epochs goes with one folder")

    from user_dir.checkpoints import average_checkpoints, last_epoch_checkpoints, save_checkpoint
    from user_dir.io import check_output

    check_output(args.output)
    paths = args.inputs
    if args.last_epochs is not None:
        paths = last_epoch_checkpoints(args.inputs[0], args.last_epochs)
    save_checkpoint(average_checkpoints(paths, args.ema), args.output)
    kind = "the moving averages of " if args.ema else ""
    print(f"{args.output}: the mean of {kind}{', '.join(map(str, paths))}")


if __name__ == "__main__":
    run_command(main)
