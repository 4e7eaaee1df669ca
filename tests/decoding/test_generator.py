"""Our beam search against fairseq's: the same hypotheses, in the same order, with the same scores."""

import own_normalizer
import post_editing
import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY, FairseqEncoderDecoderModel
from fairseq.search import BeamSearch, Sampling
from fairseq.sequence_generator import SequenceGenerator
from helpers import batch, build, dictionary

from user_dir.attention import ATTENTION_TYPES
from user_dir.attention.normalizers import NORMALIZERS
from user_dir.decoding import FastGenerator, unsupported, unsupported_model
from user_dir.errors import UserError

PRE_NORM = "--encoder-normalize-before --decoder-normalize-before"


def model(flags: str = "", seed: int = 1, **arch):
    """A small model whose distributions are far from uniform, so that no two hypotheses are equally good."""
    built = build(flags, seed=seed, **arch).eval()
    for name, parameter in built.named_parameters():
        if "embed_tokens" in name or "output_projection" in name:
            parameter.data.mul_(3)
        elif "bias" in name or "norm" in name:
            parameter.data.add_(torch.randn_like(parameter) / 5)
    return built


def sources(left_pad: bool = True) -> dict:
    """A batch as fairseq-generate passes it on."""
    whole = batch(left_pad)
    return {"net_input": {name: whole[name] for name in ("src_tokens", "src_lengths", "prev_output_tokens")}}


def both(built, options: dict, sample=None, words=None, known: bool | None = True, **arguments):
    """What our generator and fairseq's return for the same batch; by our search if its model is ``known``."""
    sample = sample or sources()
    settings = {"beam_size": 3, "max_len_a": 1.2, "max_len_b": 4, **options}
    results = []
    for kind in (FastGenerator, SequenceGenerator):
        generator = kind([built], words or dictionary(), **settings)
        if kind is FastGenerator and known is not None:
            assert (unsupported(generator, sample) is None) == known
        results.append(generator.generate([built], sample, **arguments))
    return tuple(results)


def tokens(hypotheses: list) -> list[list[int]]:
    return [each["tokens"].tolist() for each in hypotheses]


def assert_same(ours: list, theirs: list) -> None:
    assert len(ours) == len(theirs)
    for number, (mine, expected) in enumerate(zip(ours, theirs)):
        assert [each["tokens"].tolist() for each in mine] == [each["tokens"].tolist() for each in expected], (
            number
        )
        for one, other in zip(mine, expected):
            assert one.keys() == other.keys()
            for name in ("score", "positional_scores"):
                torch.testing.assert_close(one[name].double(), other[name].double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "flags",
    (
        PRE_NORM,
        "",
        f"{PRE_NORM} --attention-normalizer softmax",
        "--attention-normalizer sparsemax --activation-fn gelu",
        f"{PRE_NORM} --encoder-learned-pos --decoder-learned-pos --layernorm-embedding --alpha-tying layer",
        f"{PRE_NORM} --share-all-embeddings --no-decoder-final-norm --no-scale-embedding",
        "--no-token-positional-embeddings --encoder-attention-heads 1 --decoder-attention-heads 8",
        f"{PRE_NORM} --fixed-alpha 2.5 --attention-dropout 0.3 --dropout 0.2",
        f"{PRE_NORM} --attention-normalizer fixed --encoder-attention-heads 8",
        "--encoder-self-attention-normalizer fixed --length-scaling",
        f"{PRE_NORM} --length-scaling",
        f"{PRE_NORM} --decoder-embed-dim 8 --decoder-output-dim 12",
    ),
)
@pytest.mark.parametrize("left_pad", (True, False))
def test_same_hypotheses_for_all_models(flags, left_pad):
    assert_same(*both(model(flags), {}, sources(left_pad)))


@pytest.fixture
def _own():
    with own_normalizer.registered() as normalizer:
        yield normalizer


OURS = {"entmax", "entmax15", "sparsemax", "softmax", "fixed"}


@pytest.mark.usefixtures("_own")
@pytest.mark.parametrize("name", (*NORMALIZERS, "own"))
def test_same_hypotheses_for_all_normalizers(name):
    """By our search where the normalizer says that it is known, by fairseq's elsewhere."""
    types = ("", *(each.replace("_", "-") + "-" for each in ATTENTION_TYPES))
    for prefix in types:
        built = model(f"{PRE_NORM} --{prefix}attention-normalizer {name}")
        normalizers = {kind: layers[0].normalizer for kind, layers in built.attentions().items()}
        known = all(kind in type(each).searched for kind, each in normalizers.items())
        assert_same(*both(built, {}, known=known))
        assert known or name not in OURS


def test_a_normalizer_that_is_wrongly_said_to_be_known_gives_other_hypotheses(_own, monkeypatch):
    """The test above could fail."""
    monkeypatch.setattr(_own, "searched", ATTENTION_TYPES)
    ours, theirs = both(model(f"{PRE_NORM} --attention-normalizer own"), {})
    assert sum(tokens(one) != tokens(other) for one, other in zip(ours, theirs)) == 3


ARCHITECTURES = [
    name
    for name, kind in ARCH_MODEL_REGISTRY.items()
    if kind.__module__.startswith("user_dir.") and issubclass(kind, FairseqEncoderDecoderModel)
]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_same_hypotheses_for_all_architectures(arch):
    if "post_editor" not in arch:
        return assert_same(*both(model("", arch=arch), {}, known=None))
    built = post_editing.build("--decoder-layers 2 --decoder-attention-heads 4", arch).eval()
    built.decoder.output_projection.bias.data.normal_(std=2)
    assert_same(*both(built, {}, post_edited(), post_editing.dictionary(), known=None))


def test_architectures_are_found():
    assert {"adaptively_sparse_transformer_tiny", "adaptively_sparse_post_editor"} <= {*ARCHITECTURES}


def post_edited(left_pad: bool = True) -> dict:
    """As :func:`sources`, for post-editors."""
    whole = post_editing.batch(left_pad)
    return {"net_input": {name: whole[name] for name in ("src_tokens", "src_lengths", "prev_output_tokens")}}


@pytest.mark.parametrize("left_pad", (True, False))
@pytest.mark.parametrize("flags", ("", "--drop-sep --share-self-attention", "--attention-normalizer softmax"))
def test_same_hypotheses_for_post_editors(flags, left_pad):
    built, words = post_editing.build(flags).eval(), post_editing.dictionary()
    built.decoder.output_projection.bias.data.normal_(std=2)
    assert_same(*both(built, {"beam_size": 4, "len_penalty": 0.5}, post_edited(left_pad), words=words))


@pytest.mark.parametrize(
    "options",
    (
        {"beam_size": 1},
        {"beam_size": 5, "normalize_scores": False},
        {"beam_size": 11, "len_penalty": 2.5},
        {"len_penalty": -1.0, "max_len_a": 0, "max_len_b": 3},
        {"min_len": 5, "max_len_b": 7, "max_len_a": 0},
        {"unk_penalty": 3.0, "temperature": 0.5},
        {"unk_penalty": -9.0, "temperature": 2.0},
        {"tokens_to_suppress": ("word3", "word7")},
        {"max_len_a": 0, "max_len_b": 1},
        {"eos": 9},
    ),
    ids=str,
)
def test_same_hypotheses_for_all_options(options):
    for seed in (1, 2):
        assert_same(*both(model(PRE_NORM, seed), options))


SPARSE_CASES = {
    "peaked": {"unk_penalty": -9.0, "temperature": 0.2, "min_len": 3},
    "flat": {"temperature": 5.0, "tokens_to_suppress": ("word3", "word7")},
    "fewer hypotheses": {"beam_size": 11, "len_penalty": 0.5},
    "no whole translation": {"beam_size": 1, "max_len_a": 0, "max_len_b": 1},
}


@pytest.mark.parametrize("alpha", (1.25, 1.5, 2.0))
@pytest.mark.parametrize("case", SPARSE_CASES)
def test_same_hypotheses_for_sparse_outputs(alpha, case):
    options, found = SPARSE_CASES[case], []
    for seed in range(1, 6):
        ours, theirs = both(model(f"{PRE_NORM} --output-alpha {alpha}", seed), options)
        assert_same(ours, theirs)
        found += ours
    if case == "fewer hypotheses":
        assert any(len(each) < 11 for each in found)
    if case == "no whole translation":
        assert any(each[0]["score"].isinf() for each in found)


def test_same_hypotheses_after_another_first_symbol():
    assert_same(*both(model(), {}, bos_token=7))


def test_in_single_precision_the_first_hypothesis_is_the_same():
    built = model(PRE_NORM).float()
    ours, theirs = both(built, {"beam_size": 4})
    for mine, expected in zip(ours, theirs):
        assert mine[0]["tokens"].tolist() == expected[0]["tokens"].tolist()
        torch.testing.assert_close(mine[0]["score"], expected[0]["score"], rtol=1e-4, atol=1e-4)


def test_changed_parameters_are_noticed():
    built = model(PRE_NORM)
    sample = sources()
    for fast in (False, True):
        built._is_generation_fast = fast
        generator = FastGenerator([built], dictionary(), beam_size=2, max_len_b=5)
        first = generator.generate([built], sample)[0][0]["score"]
        with torch.no_grad():
            built.decoder.layers[0].fc1.weight.mul_(-1)
        second = generator.generate([built], sample)[0][0]["score"]
        theirs = SequenceGenerator([built], dictionary(), beam_size=2, max_len_b=5).generate([built], sample)
        assert first != second
        torch.testing.assert_close(second, theirs[0][0]["score"].double(), rtol=1e-5, atol=1e-5)


def test_what_is_not_supported_is_left_to_fairseq():
    words, sample = dictionary(), sources()
    built = model()

    def reason(**options):
        return unsupported(FastGenerator([built], words, **options), sample)

    assert reason() is None
    assert "n-grams" in reason(no_repeat_ngram_size=2)
    assert "plain beam search" in reason(search_strategy=Sampling(words))
    assert "plain beam search" in reason(search_strategy=BeamSearch(words), match_source_len=True)
    assert "as large as the vocabulary" in reason(beam_size=12)
    assert "several models" in unsupported(FastGenerator([built, built], words), sample)
    assert "prescribed" in unsupported(
        FastGenerator([built], words), sample, prefix_tokens=torch.tensor([[5]])
    )
    built.int8 = True
    with pytest.raises(UserError, match="--int8 is not possible here: repeated n-grams"):
        FastGenerator([built], words, no_repeat_ngram_size=2).generate([built], sample)


@pytest.mark.parametrize(
    "flags, reason",
    (
        ("--cross-self-attention --no-cross-attention", "lacks context attention"),
        ("--no-cross-attention", "lacks context attention"),
        ("--attention-normalizer rela", "ReLA"),
        ("--latent-alignment", "not the usual ones"),
        ("--scale-heads", "c_attn"),
    ),
)
def test_models_that_are_left_to_fairseq(flags, reason):
    if "--scale-heads" in flags:
        built = model()
        built.decoder.layers[1].c_attn = torch.nn.Parameter(torch.ones(2))
    else:
        built = build(flags).eval()
    assert reason in unsupported_model(built)


def test_a_penalty_on_new_pieces_is_left_to_fairseq():
    built = post_editing.build().eval()
    assert unsupported_model(built) is None
    built.decoder.new_piece_penalty = 2.0
    assert "new_piece_penalty" in unsupported_model(built)


def test_a_stock_transformer_is_left_to_fairseq():
    assert "TransformerModel" in unsupported_model(build("", "transformer"))


def test_scores_that_are_nan_are_an_error():
    built = model()
    built.decoder.output_projection.weight.data.fill_(torch.nan)
    with pytest.raises(ValueError, match="sentence 1 of the batch has no translation"):
        FastGenerator([built], dictionary(), max_len_b=3).generate([built], sources())


def test_int8_is_close():
    built = model(PRE_NORM).float()
    generator = FastGenerator([built], dictionary(), beam_size=3, max_len_b=5)
    exact = generator.generate([built], sources())
    built.int8 = True
    rounded = generator.generate([built], sources())
    for one, other in zip(exact, rounded):
        assert one[0]["score"] != other[0]["score"]
        torch.testing.assert_close(one[0]["score"], other[0]["score"], rtol=0.1, atol=0.1)
