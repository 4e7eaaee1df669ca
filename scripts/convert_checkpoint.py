#!/usr/bin/env python3
"""Convert a checkpoint of fairseq's transformer to this plugin's model.

With --alpha 1, the default, it translates exactly as before, through α-entmax attention. Training with
learned α can start from a transformer checkpoint without conversion: use fairseq-train --finetune-from-model.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from _split import new_parser

from user_dir.command_line import file_path, run_command


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = new_parser(__doc__)
    parser.add_argument(
        "--path", type=file_path, required=True, metavar="CHECKPOINT", help="checkpoint to convert"
    )
    parser.add_argument(
        "--output",
        type=file_path,
        metavar="FILE",
        help="converted checkpoint (default: CHECKPOINT.entmax.pt beside the checkpoint)",
    )
    parser.add_argument(
        "--alpha", type=float, default=1.0, metavar="ALPHA", help="α of every head (default: 1, softmax)"
    )
    args = parser.parse_args(argv)
    args.output = args.output or args.path.with_name(f"{args.path.stem}.entmax.pt")
    return args


def main(argv=None) -> None:
    """Convert and write."""
    args = parse_args(argv)

    from user_dir.checkpoints import load_checkpoint, save_checkpoint
    from user_dir.io import check_output
    from user_dir.models.from_settings import from_stock

    check_output(args.output, [args.path])
    save_checkpoint(from_stock(load_checkpoint(args.path, optimizer=True), args.alpha), args.output)
    print(f"{args.output}: adaptively_sparse_transformer with α = {args.alpha:g} in every head")


if __name__ == "__main__":
    run_command(main)
