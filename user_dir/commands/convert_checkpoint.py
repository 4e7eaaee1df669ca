"""Convert a checkpoint of fairseq's transformer to this plugin's model, or round one to 8 bits.

With --alpha 1, the default, it computes what it did before, through α-entmax attention. Training with
learned α can start from a transformer checkpoint without conversion: use fairseq-train --finetune-from-model.

With --int8, every matrix of parameters is rounded to 8-bit integers times a number for each row, and nothing
else changes: what release.py makes of this checkpoint has a quarter of the size, and the same translations.
"""

from __future__ import annotations

from ..command_line import checkpoint_path, file_path, option_adder
from .options import new_parser


def main(argv=None) -> None:
    """Convert and write."""
    parser = new_parser(__doc__)
    add = option_adder(parser)
    add("--path", file_path, "checkpoint to convert", required=True, metavar="CHECKPOINT")
    beside = "CHECKPOINT.entmax.pt, or CHECKPOINT.int8.pt, beside the checkpoint"
    add("--output", checkpoint_path, f"converted checkpoint (default: {beside})")
    way = parser.add_mutually_exclusive_group()
    option_adder(way)("--alpha", float, "α of every head (default: 1, softmax)", default=1.0, metavar="ALPHA")
    way.add_argument("--int8", action="store_true", help="of any model: round its matrices to 8 bits")
    args = parser.parse_args(argv)
    kind = "int8" if args.int8 else "entmax"
    output = args.output or args.path.with_name(f"{args.path.stem}.{kind}.pt")

    from ..checkpoints import load_checkpoint, save_checkpoint
    from ..eight_bits import rounded
    from ..io import check_output
    from ..models.from_settings import from_stock

    check_output(output, [args.path])
    if args.int8:
        state = load_checkpoint(args.path)
        (state.get("extra_state") or {}).pop("ema", None)  # it is not of these parameters
        save_checkpoint({**state, "model": rounded(state["model"])}, output)
        print(f"{output}: matrices rounded to 8 bits")
        return
    save_checkpoint(from_stock(load_checkpoint(args.path, optimizer=True), args.alpha), output)
    print(f"{output}: adaptively_sparse_transformer with α = {args.alpha:g} in every head")
