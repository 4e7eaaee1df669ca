"""Convert a checkpoint of fairseq's transformer to this plugin's model.

With --alpha 1, the default, it computes what it did before, through α-entmax attention. Training with
learned α can start from a transformer checkpoint without conversion: use fairseq-train --finetune-from-model.
"""

from __future__ import annotations

from .options import file_path, new_parser, option_adder


def main(argv=None) -> None:
    """Convert and write."""
    parser = new_parser(__doc__)
    add = option_adder(parser)
    add("--path", file_path, "checkpoint to convert", required=True, metavar="CHECKPOINT")
    beside = "CHECKPOINT.entmax.pt, beside the checkpoint"
    add("--output", file_path, f"converted checkpoint (default: {beside})")
    add("--alpha", float, "α of every head (default: 1, softmax)", default=1.0, metavar="ALPHA")
    args = parser.parse_args(argv)
    output = args.output or args.path.with_name(f"{args.path.stem}.entmax.pt")

    from ..checkpoints import load_checkpoint, model_settings, save_checkpoint
    from ..files import check_output
    from ..models.transformer import from_stock

    check_output(output, [args.path])
    state = load_checkpoint(args.path, optimizer=True)
    state["cfg"]["model"] = from_stock(model_settings(state), args.alpha)
    save_checkpoint(state, output)
    print(f"{output}: adaptively_sparse_transformer with α = {args.alpha:g} in every head")
