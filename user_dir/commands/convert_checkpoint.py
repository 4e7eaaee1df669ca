"""Convert a checkpoint of fairseq's transformer to this plugin's model.

With --alpha 1, the default, it translates exactly as before, through α-entmax attention. Training with
learned α can start from a transformer checkpoint without conversion: use fairseq-train --finetune-from-model.
"""

from __future__ import annotations

import argparse

from ..command_line import file_path
from .options import new_parser


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

    from ..checkpoints import load_checkpoint, save_checkpoint
    from ..io import check_output
    from ..models.from_settings import from_stock

    check_output(args.output, [args.path])
    save_checkpoint(from_stock(load_checkpoint(args.path, optimizer=True), args.alpha), args.output)
    print(f"{args.output}: adaptively_sparse_transformer with α = {args.alpha:g} in every head")
