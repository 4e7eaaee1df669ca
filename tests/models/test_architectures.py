"""Architectures have the sizes of fairseq's architectures of the same name."""

import pytest
from helpers import parse

OURS = "adaptively_sparse_transformer"


def settings(flags, arch, but=()):
    args = vars(parse(flags, arch))
    return {name: value for name, value in args.items() if name not in ("arch", *but)}


@pytest.mark.parametrize(
    "flags", ("", "--encoder-layers 3 --decoder-attention-heads 2 --dropout 0.2 --share-all-embeddings")
)
@pytest.mark.parametrize("size", ("_iwslt_de_en", "_wmt_en_de", "_wmt_en_de_big"))
def test_equal_stock(size, flags):
    assert settings(flags, OURS + size) == settings(flags, "transformer" + size)


@pytest.mark.parametrize("size", ("", "_wmt_en_de"))
def test_decoder_sizes_default_to_the_encoder_s_as_in_stock(size):
    flags = "--encoder-embed-dim 64 --encoder-ffn-embed-dim 128"
    norm = ("encoder_normalize_before", "decoder_normalize_before")
    assert settings(flags, OURS + size, norm) == settings(flags, "transformer" + size, norm)


def test_base_is_stock_with_pre_norm():
    norm = ("encoder_normalize_before", "decoder_normalize_before")
    assert settings("", OURS, norm) == settings("", "transformer", norm)
    args = parse("", OURS)
    assert args.encoder_normalize_before and args.decoder_normalize_before
    assert (args.encoder_embed_dim, args.encoder_ffn_embed_dim, args.encoder_layers) == (512, 2048, 6)
    assert (args.decoder_attention_heads, args.decoder_layers) == (8, 6)


def test_tiny():
    args = parse("", OURS + "_tiny")
    for side in ("encoder", "decoder"):
        sizes = [
            getattr(args, f"{side}_{name}")
            for name in ("embed_dim", "ffn_embed_dim", "layers", "attention_heads")
        ]
        assert sizes == [128, 256, 4, 4]


@pytest.mark.parametrize("size", ("", "_tiny", "_iwslt_de_en", "_wmt_en_de", "_wmt_en_de_big"))
def test_given_sizes_are_kept(size):
    args = parse(
        "--encoder-embed-dim 48 --decoder-embed-dim 96 --encoder-attention-heads 6 --decoder-layers 1",
        OURS + size,
    )
    assert (args.encoder_embed_dim, args.decoder_embed_dim) == (48, 96)
    assert (args.encoder_attention_heads, args.decoder_layers) == (6, 1)
