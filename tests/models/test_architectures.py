"""Architectures have the sizes of fairseq's architectures of the same name."""

from pathlib import Path

import pytest
from fairseq.models import ARCH_MODEL_REGISTRY
from helpers import parse

PAGE = Path(__file__).resolve().parents[2] / "docs" / "options.md"
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


BASE, TINY, BERT = (512, 2048, 6, 8), (128, 256, 4, 4), (768, 3072, 12, 12)
SIZES = {
    OURS: BASE,
    f"{OURS}_tiny": TINY,
    f"{OURS}_small": (256, 1024, 4, 4),
    f"{OURS}_lm": BASE,
    f"{OURS}_lm_tiny": TINY,
    f"{OURS}_lm_wiki103": (1024, 4096, 16, 8),
    "adaptively_sparse_post_editor": BERT,
    "adaptively_sparse_post_editor_base": BERT,
    "adaptively_sparse_post_editor_tiny": (128, 512, 4, 4),
    "adaptively_sparse_masked_lm": BERT,
    "adaptively_sparse_masked_lm_tiny": (128, 512, 4, 4),
}


@pytest.mark.parametrize("arch", SIZES)
def test_sizes(arch):
    args = parse("--task language_modeling" if f"{OURS}_lm" in arch else "", arch)
    for side in ("decoder",) if f"{OURS}_lm" in arch else ("encoder", "decoder"):
        names = ("embed_dim", "ffn_embed_dim", "layers", "attention_heads")
        assert tuple(getattr(args, f"{side}_{name}") for name in names) == SIZES[arch]
    assert getattr(args, "adaptive_input", False) == arch.endswith("wiki103")
    if SIZES[arch] is BERT:
        assert args.activation_fn == "gelu" and args.layer_norm_eps == 1e-12


@pytest.mark.parametrize("size", ("", "_tiny", "_iwslt_de_en", "_wmt_en_de", "_wmt_en_de_big"))
def test_given_sizes_are_kept(size):
    args = parse(
        "--encoder-embed-dim 48 --decoder-embed-dim 96 --encoder-attention-heads 6 --decoder-layers 1",
        OURS + size,
    )
    assert (args.encoder_embed_dim, args.decoder_embed_dim) == (48, 96)
    assert (args.encoder_attention_heads, args.decoder_layers) == (6, 1)


def test_every_size_is_on_its_page():
    page = PAGE.read_text(encoding="utf-8")
    sizes = [name for name in ARCH_MODEL_REGISTRY if name.startswith(OURS) and f"{OURS}_lm" not in name]
    assert f"{OURS}_tiny" in sizes
    assert [name for name in sizes if f"\n| `{name}` |" not in page] == []
