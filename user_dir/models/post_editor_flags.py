"""The flags of the post-editor, and the flags of fairseq's Transformer that its layers do not have."""

from __future__ import annotations

from ..errors import UserError

INITS = {"decoder_init": ("random", "bert"), "context_init": ("random", "self")}
SWITCHES = ("share_self_attention", "tie_context_attention", "share_feed_forward", "drop_sep", "ema_warmup")
# fairseq's flags that would change BERT's layers or embeddings.
REFUSED = (
    "encoder_normalize_before",
    "decoder_normalize_before",
    "adaptive_input",
    "adaptive_softmax_cutoff",
    "cross_self_attention",
    "no_cross_attention",
    "no_decoder_final_norm",
    "encoder_embed_path",
    "decoder_embed_path",
    "encoder_layers_to_keep",
    "decoder_layers_to_keep",
    "merge_src_tgt_embed",
    "tie_adaptive_weights",
    "quant_noise_pq",
    "base_layers",
)


def add_bert_flags(parser) -> None:
    """Add the flag that names a pretrained encoder."""
    parser.add_argument(
        "--bert",
        metavar="PATH",
        help="start from this BERT: a folder as Hugging Face lays it out (config.json, tokenizer and "
        "model.safetensors or pytorch_model.bin), or a checkpoint of adaptively_sparse_masked_lm",
    )
    parser.add_argument(
        "--layer-norm-eps",
        type=float,
        metavar="X",
        help="ε of every LayerNorm (default: 1e-12, or that of the --bert)",
    )


def add_post_editor_flags(parser) -> None:
    """Add all flags of the post-editor."""
    add_bert_flags(parser)
    add = parser.add_argument
    add(
        "--decoder-init",
        metavar="NAME",
        help="start of the decoder's layers: random, or bert (default), as the encoder's",
    )
    add(
        "--context-init",
        metavar="NAME",
        help="start of the context attention's projections: random, or self (default), a copy of the "
        "decoder's self-attention",
    )
    add(
        "--share-self-attention",
        action="store_true",
        help="encoder and decoder share the projections of self-attention",
    )
    add(
        "--tie-context-attention",
        action="store_true",
        help="the decoder's context attention and self-attention share their projections",
    )
    add(
        "--share-feed-forward",
        action="store_true",
        help="encoder and decoder share their feed-forward networks",
    )
    add(
        "--drop-sep",
        action="store_true",
        help="remove [SEP] from the input once segments and positions are known",
    )
    add(
        "--ema-warmup",
        action="store_true",
        help="let the decay of --store-ema grow from 0: at most (t + 1) / (t + 10) at update t",
    )
    add(
        "--copy-gate",
        type=float,
        metavar="A",
        help="copy from the machine translation unless a gate opens, which is α-entmax with this α, from 1 "
        "to 2, such as 1.5; train with --criterion post_editing_loss (default: no gate)",
    )
    add(
        "--new-piece-penalty",
        type=float,
        metavar="X",
        help="when translating, subtract this from the logits of pieces that stand neither in the source nor "
        "in the machine translation, against over-correction (default: 0)",
    )


def check_bert_flags(args) -> None:
    """Fill in and validate the flags of :func:`add_bert_flags`; raises UserError."""
    args.bert = getattr(args, "bert", None)
    eps = getattr(args, "layer_norm_eps", None)
    args.layer_norm_eps = 1e-12 if eps is None and not args.bert else eps
    if args.layer_norm_eps is not None:  # else that of the BERT
        _require_number(args, "layer_norm_eps", 1)
    for name in REFUSED:
        if getattr(args, name, None):
            raise UserError(f"--{name.replace('_', '-')} would change BERT's layers; omit it")


def check_post_editor_flags(args) -> None:
    """Fill in and validate the flags of :func:`add_post_editor_flags`; raises UserError."""
    check_bert_flags(args)
    for name, choices in INITS.items():
        value = getattr(args, name, None)
        setattr(args, name, choices[-1] if value is None else value)
        if getattr(args, name) not in choices:
            raise UserError(
                f"unknown --{name.replace('_', '-')} {value!r}: choose from {' and '.join(choices)}"
            )
    for name in SWITCHES:
        value = getattr(args, name, None)
        if value not in (None, False, True):
            raise UserError(f"--{name.replace('_', '-')} must be true or false, not {value!r}")
        setattr(args, name, bool(value))
    args.copy_gate = getattr(args, "copy_gate", None)
    if args.copy_gate is not None:
        _require_number(args, "copy_gate", 2, 1)
    penalty = getattr(args, "new_piece_penalty", None)
    args.new_piece_penalty = 0.0 if penalty is None else penalty
    _require_number(args, "new_piece_penalty", 1000)
    for size in ("embed_dim", "ffn_embed_dim", "layers", "attention_heads"):
        ours, theirs = getattr(args, f"encoder_{size}"), getattr(args, f"decoder_{size}")
        if ours != theirs:
            flag = size.replace("_", "-")
            raise UserError(
                f"--encoder-{flag} {ours} and --decoder-{flag} {theirs} must be equal, because encoder and "
                "decoder are one BERT"
            )


def _require_number(args, name: str, most: float, least: float = 0) -> None:
    value = getattr(args, name)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= most:
        raise UserError(f"--{name.replace('_', '-')} must be a number from {least} to {most}, not {value!r}")
