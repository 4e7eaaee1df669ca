"""Architectures of the post-editor and of the masked language model that pretrains its encoder."""

from __future__ import annotations

from functools import partial

from fairseq.models import register_model_architecture

from . import masked_lm, post_editor  # noqa: F401  register the models
from .architectures import default, size
from .post_editor_flags import check_bert_flags, check_post_editor_flags

EDITOR, MASKED_LM = "adaptively_sparse_post_editor", "adaptively_sparse_masked_lm"
BERT = {"embed_dim": 768, "ffn_embed_dim": 3072, "layers": 12, "heads": 12}
TINY = {"embed_dim": 128, "ffn_embed_dim": 512, "layers": 4, "heads": 4}


def _bert(args, sizes: dict[str, int]) -> None:
    default(
        args,
        activation_fn="gelu",
        dropout=0.1,
        attention_dropout=0.1,
        encoder_learned_pos=True,
        decoder_learned_pos=True,
        layernorm_embedding=True,
        max_source_positions=512,
        max_target_positions=512,
    )
    # Not a choice: without these it would be another model.
    args.no_scale_embedding = args.no_token_positional_embeddings = True
    args.share_all_embeddings = args.share_decoder_input_output_embed = True
    args.layernorm_embedding = True
    default(args, encoder_layers=sizes["layers"], encoder_attention_heads=sizes["heads"])
    # Both sides are one BERT.
    default(args, decoder_layers=args.encoder_layers, decoder_attention_heads=args.encoder_attention_heads)
    size(args, **sizes)


def _post_editor(args, sizes: dict[str, int]) -> None:
    _bert(args, sizes)
    check_post_editor_flags(args)


def _masked_lm(args, sizes: dict[str, int]) -> None:
    _bert(args, sizes)
    args.max_target_positions = args.max_source_positions  # there is no target
    check_bert_flags(args)


# In BERT's size, and a small one for small corpora and CPUs.
for suffix, sizes in (("", BERT), ("_base", BERT), ("_tiny", TINY)):
    register_model_architecture(EDITOR, EDITOR + suffix)(partial(_post_editor, sizes=sizes))
    register_model_architecture(MASKED_LM, MASKED_LM + suffix)(partial(_masked_lm, sizes=sizes))
