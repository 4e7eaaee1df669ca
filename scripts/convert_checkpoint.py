#!/usr/bin/env python3
"""Turn a checkpoint of fairseq's stock transformer into one of this plugin's model.

With --alpha 1, the default, it translates exactly as before, through α-entmax attention. To go on training
from a stock checkpoint with learned α's, no conversion is needed: give fairseq-train --finetune-from-model.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from user_dir.command_line import file_path, run_command


def main(argv=None) -> None:
    """Read the command line, convert, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("input", type=file_path, help="stock checkpoint")
    parser.add_argument("output", type=file_path, help="checkpoint to write")
    parser.add_argument("--alpha", type=float, default=1.0, help="α of every head (default: 1, softmax)")
    args = parser.parse_args(argv)

    from user_dir.checkpoints import load_checkpoint, save_checkpoint
    from user_dir.io import check_output
    from user_dir.models.from_settings import from_stock

    check_output(args.output)
    save_checkpoint(from_stock(load_checkpoint(args.input), args.alpha), args.output)
    print(f"{args.output}: adaptively_sparse_transformer with alpha {args.alpha:g} in every head")


if __name__ == "__main__":
    run_command(main)
