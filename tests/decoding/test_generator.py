"""Our beam search against fairseq's: the same hypotheses, in the same order, with the same scores."""

import own_normalizer
import post_editing
import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY, FairseqEncoderDecoderModel
from fairseq.search import BeamSearch, Sampling
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from helpers import batch, build, dictionary, peaked

from user_dir.attention import ATTENTION_TYPES
from user_dir.attention.normalizers import NORMALIZERS
from user_dir.attention.normalizers.alpha_entmax import AlphaEntmax
from user_dir.decoding import generator as generator_module
from user_dir.decoding.generator import AligningGenerator, FastGenerator, unsupported
from user_dir.decoding.supported import unsupported_model
from user_dir.errors import UserError

PRE_NORM = "--encoder-normalize-before --decoder-normalize-before"


class AsOnGpu(FastGenerator):
    on_device = True


class AligningAsOnGpu(AligningGenerator):
    on_device = True


def sources(left_pad: bool = True) -> dict:
    """A batch as fairseq-generate passes it on."""
    whole = batch(left_pad)
    return {"net_input": {name: whole[name] for name in ("src_tokens", "src_lengths", "prev_output_tokens")}}


SEARCH = FastGenerator, SequenceGenerator
ALIGNMENT = AligningGenerator, SequenceGeneratorWithAlignment


def both(built, options: dict, sample=None, words=None, known: bool = True, kinds=SEARCH, **arguments):
    """What our generator and fairseq's return for the same batch; by our search if its model is ``known``.

    Several models are an ensemble. Our search for a GPU is compared with fairseq's here.
    """
    sample, models = sample or sources(), built if isinstance(built, list) else [built]
    settings = {"beam_size": 3, "max_len_a": 1.2, "max_len_b": 4, **options}
    results = []
    for kind in kinds:
        generator = kind(models, words or dictionary(), **settings)
        if kind is kinds[0]:
            assert (unsupported(generator, sample) is None) == known
        results.append(generator.generate(models, sample, **arguments))
    generator = (AsOnGpu if kinds is SEARCH else AligningAsOnGpu)(models, words or dictionary(), **settings)
    assert (unsupported(generator, sample) is None) == known
    assert_same(generator.generate(models, sample, **arguments), results[1])
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
            compared = ["score", "positional_scores", *(["attention"] if one["attention"].numel() else [])]
            for name in compared:
                torch.testing.assert_close(one[name].double(), other[name].double(), rtol=1e-5, atol=1e-5)
            if compared[2:]:
                assert_same_alignment(one["alignment"], other["alignment"])


def assert_same_alignment(ours: list, theirs: list) -> None:
    """Links, or weights as text with six decimals."""
    if any(isinstance(row, tuple) for row in theirs):
        assert ours == theirs
    else:
        numbers = [torch.tensor([[float(x) for x in row] for row in each]) for each in (ours, theirs)]
        torch.testing.assert_close(*numbers, rtol=0, atol=2e-6)


LATENT = f"{PRE_NORM} --latent-alignment --latent-alignment-alpha 1.6 --latent-alignment-top-k 3"


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
        f"{PRE_NORM} --attention-normalizer rela --length-scaling",
        f"{PRE_NORM} --decoder-context-attention-normalizer rela",
        LATENT,
        f"{LATENT} --latent-alignment-soft",
        "--latent-alignment --latent-alignment-top-k 9 --alpha-tying model",
        "--latent-alignment --latent-alignment-alpha 2 --attention-normalizer rela",
    ),
)
@pytest.mark.parametrize("left_pad", (True, False))
def test_same_hypotheses_and_alignments_for_all_models(flags, left_pad):
    ours, theirs = both(peaked(flags), {}, sources(left_pad), kinds=ALIGNMENT)
    assert_same(ours, theirs)
    assert all(each["attention"].numel() and each["alignment"] for found in ours for each in found)
    without, _ = both(peaked(flags), {}, sources(left_pad))
    assert [tokens(each) for each in without] == [tokens(each) for each in ours]
    assert not any(each["attention"].numel() for found in without for each in found)


def test_a_model_without_context_attention_has_no_alignments():
    built = peaked(f"{PRE_NORM} --no-cross-attention")
    assert_same(*both(built, {}))
    with pytest.raises(UserError, match="context attention"):
        AligningGenerator([built], dictionary(), max_len_b=3).generate([built], sources())


@pytest.fixture
def _own():
    with own_normalizer.registered() as normalizer:
        yield normalizer


@pytest.mark.usefixtures("_own")
@pytest.mark.parametrize("name", (*NORMALIZERS, "own"))
def test_same_hypotheses_for_all_normalizers(name):
    """By the kernels, or by the normalizer's own ``forward``."""
    types = ("", *(each.replace("_", "-") + "-" for each in ATTENTION_TYPES))
    for prefix in types:
        built = peaked(f"{PRE_NORM} --{prefix}attention-normalizer {name}")
        assert_same(*both(built, {}, kinds=ALIGNMENT))


def test_the_kernels_compute_something_else_than_another_normalizer(_own, monkeypatch):
    """The test above could fail."""
    monkeypatch.setattr(_own, "forward", AlphaEntmax.forward)
    ours, _ = both(peaked(f"{PRE_NORM} --attention-normalizer own"), {}, known=False)
    monkeypatch.undo()
    _, theirs = both(peaked(f"{PRE_NORM} --attention-normalizer own"), {})
    assert sum(tokens(one) != tokens(other) for one, other in zip(ours, theirs)) == 3


ARCHITECTURES = [
    name
    for name, kind in ARCH_MODEL_REGISTRY.items()
    if kind.__module__.startswith("user_dir.") and issubclass(kind, FairseqEncoderDecoderModel)
]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_same_hypotheses_for_all_architectures(arch):
    if "post_editor" not in arch:
        return assert_same(*both(peaked("", arch=arch), {}))
    built = post_editing.build("--decoder-layers 2 --decoder-attention-heads 4", arch).eval()
    built.decoder.output_projection.bias.data.normal_(std=2)
    assert_same(*both(built, {}, post_edited(), post_editing.dictionary()))


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
    options, given = {"beam_size": 4, "len_penalty": 0.5}, {"words": words, "kinds": ALIGNMENT}
    assert_same(*both(built, options, post_edited(left_pad), **given))


def test_same_hypotheses_with_a_penalty_on_new_pieces():
    built, words = post_editing.build().eval(), post_editing.dictionary()
    without, _ = both(built, {}, post_edited(), words=words)
    built.decoder.new_piece_penalty = 2.0
    ours, theirs = both(built, {}, post_edited(), words=words)
    assert_same(ours, theirs)
    assert [tokens(each) for each in ours] != [tokens(each) for each in without]


@pytest.mark.parametrize("kind", (FastGenerator, AsOnGpu))
def test_another_penalty_is_noticed(kind):
    built, words = post_editing.build().eval(), post_editing.dictionary()
    built.decoder.output_projection.bias.data.normal_(std=2)
    built._is_generation_fast = True
    search = kind([built], words, beam_size=3, max_len_b=6)
    found = []
    for penalty in (0.0, 4.0, 0.0):
        built.decoder.new_piece_penalty = penalty
        found.append(search.generate([built], post_edited()))
        expected = SequenceGenerator([built], words, beam_size=3, max_len_b=6)
        assert_same(found[-1], expected.generate([built], post_edited()))
    assert [tokens(each) for each in found[0]] != [tokens(each) for each in found[1]]


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
        {"no_repeat_ngram_size": 1, "max_len_b": 12},
        {"no_repeat_ngram_size": 2, "max_len_b": 12, "min_len": 8},
        {"no_repeat_ngram_size": 3, "max_len_b": 12, "min_len": 10},
    ),
    ids=str,
)
def test_same_hypotheses_for_all_options(options):
    for seed in (1, 2):
        assert_same(*both(peaked(PRE_NORM, seed), options))


@pytest.mark.parametrize("size", (1, 2, 3))
def test_no_ngram_is_repeated(size):
    """Although the same search without the option repeats some in every sentence."""

    def repeats(found: list) -> list[bool]:
        every = [each["tokens"].tolist() for each in found]
        ngrams = [[tuple(x[i : i + size]) for i in range(len(x) - size + 1)] for x in every]
        return [len(set(each)) < len(each) for each in ngrams]

    options = {"max_len_b": 12, "min_len": 10}
    ours, _ = both(peaked(PRE_NORM), {**options, "no_repeat_ngram_size": size})
    free, _ = both(peaked(PRE_NORM), options)
    assert all(any(repeats(each)) for each in free)
    assert not any(any(repeats(each)) for each in ours)


PREFIXES = {
    "equal lengths": [[5, 9], [6, 0], [9, 9]],
    "unequal lengths": [[5, 9, 4], [6, 1, 1], [9, 4, 1]],
    "none in one sentence": [[5, 9], [1, 1], [9, 1]],
    "longer than translations may be": [[5, 9, 4, 4, 5, 6, 8, 9, 10, 11, 12, 13]] * 3,
    "with the end": [[5, 9, 2], [6, 2, 1], [2, 1, 1]],
    "with an unknown and a suppressed word": [[3, 0], [0, 3], [7, 7]],
}
"""A prefix of target tokens for each sentence; 1 is padding, and 2 the end."""


@pytest.mark.parametrize(
    "options",
    (
        {},
        {"min_len": 4, "tokens_to_suppress": ("word3",), "unk_penalty": 1.5},
        {"beam_size": 1},
        {"no_repeat_ngram_size": 1},
    ),
    ids=str,
)
@pytest.mark.parametrize("case", PREFIXES)
def test_same_hypotheses_after_the_same_beginning(case, options):
    prefix = torch.tensor(PREFIXES[case])
    for flags in (PRE_NORM, f"{PRE_NORM} --output-alpha 1.5"):
        ours, theirs = both(peaked(flags), options, prefix_tokens=prefix)
        assert_same(ours, theirs)
        for found, given in zip(ours, prefix.tolist()):
            begin = [symbol for symbol in given if symbol != 1]
            for each in found:
                made = each["tokens"].tolist()
                possible = each["score"].isfinite()
                assert not possible or made[: len(begin)] == begin[: len(made) - 1] or begin == made


ENSEMBLES = {
    "alike": ([PRE_NORM, PRE_NORM], {}),
    "three, warm": ([PRE_NORM, "", f"{PRE_NORM} --attention-normalizer rela"], {"temperature": 1.7}),
    "sparse": ([f"{PRE_NORM} --output-alpha 1.5", f"{PRE_NORM} --output-alpha 1.2"], {"temperature": 2.5}),
    "sparse and dense": ([f"{PRE_NORM} --output-alpha 1.5", PRE_NORM], {"unk_penalty": 1.0}),
    "latent": ([LATENT, PRE_NORM], {"no_repeat_ngram_size": 2}),
}


@pytest.mark.parametrize("case", ENSEMBLES)
def test_same_hypotheses_and_alignments_for_ensembles(case):
    flags, options = ENSEMBLES[case]
    models = [peaked(each, seed) for seed, each in enumerate(flags, start=1)]
    ours, theirs = both(models, options, kinds=ALIGNMENT)
    assert_same(ours, theirs)
    assert_same(*both(models, options, prefix_tokens=torch.tensor([[5, 9], [6, 1], [9, 4]])))
    alone, _ = both(models[0], options)
    assert [tokens(each) for each in alone] != [tokens(each) for each in ours]


@pytest.mark.parametrize("kind", ("hard", "soft"))
@pytest.mark.parametrize("left_pad", (True, False))
def test_same_alignments_of_both_kinds(kind, left_pad):
    ours, theirs = both(peaked(PRE_NORM), {"print_alignment": kind}, sources(left_pad), kinds=ALIGNMENT)
    assert_same(ours, theirs)
    width = {len(row) for found in ours for each in found for row in each["alignment"]}
    assert (width == {2}) == (kind == "hard")


def test_alignments_of_fewer_hypotheses_than_the_beam():
    ours, theirs = both(peaked(f"{PRE_NORM} --output-alpha 2"), {"beam_size": 11}, kinds=ALIGNMENT)
    assert_same(ours, theirs)
    assert any(len(each) < 11 for each in ours)
    for each in [each for hypotheses in ours for each in hypotheses]:
        assert len(each["alignment"]) == len(each["tokens"]) - 1


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
        ours, theirs = both(peaked(f"{PRE_NORM} --output-alpha {alpha}", seed), options)
        assert_same(ours, theirs)
        found += ours
    if case == "fewer hypotheses":
        assert any(len(each) < 11 for each in found)
    if case == "no whole translation":
        assert any(each[0]["score"].isinf() for each in found)


def test_same_hypotheses_after_another_first_symbol():
    assert_same(*both(peaked(), {}, bos_token=7))


def test_in_single_precision_the_first_hypothesis_is_the_same():
    built = peaked(PRE_NORM).float()
    ours, theirs = both(built, {"beam_size": 4})
    for mine, expected in zip(ours, theirs):
        assert mine[0]["tokens"].tolist() == expected[0]["tokens"].tolist()
        torch.testing.assert_close(mine[0]["score"], expected[0]["score"], rtol=1e-4, atol=1e-4)


def test_changed_parameters_are_noticed():
    built = peaked(PRE_NORM)
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


def test_a_model_in_use_is_looked_at_once(monkeypatch):
    built, looked = peaked(PRE_NORM), []
    monkeypatch.setattr(
        generator_module,
        "unsupported_model",
        lambda *given: looked.append(given) or unsupported_model(*given),
    )
    for fast in (True, False):
        built._is_generation_fast = fast
        generator = FastGenerator([built], dictionary())
        assert [unsupported(generator, sources()) for _ in range(3)] == [None] * 3
        assert len(looked) == (1 if fast else 3)
        handle = built.decoder.register_forward_hook(lambda *_: None)
        assert "hook" in unsupported(generator, sources())
        handle.remove()
        looked.clear()


def test_what_is_not_supported_is_left_to_fairseq():
    words, sample = dictionary(), sources()
    built = peaked()

    def reason(**options):
        return unsupported(FastGenerator([built], words, **options), sample)

    assert reason() is None
    assert "a language model" in reason(lm_model=built)
    assert "plain beam search" in reason(search_strategy=Sampling(words))
    assert "plain beam search" in reason(search_strategy=BeamSearch(words), match_source_len=True)
    assert "as large as the vocabulary" in reason(beam_size=12)
    stock, narrow = build("", "transformer").eval(), peaked().float()
    assert "TransformerModel" in unsupported(FastGenerator([built, stock], words), sample)
    assert "different types" in unsupported(FastGenerator([built, narrow], words), sample)
    assert "prescribed" in unsupported(FastGenerator([built], words), sample, torch.tensor([[5]]))
    built.int8 = True
    with pytest.raises(UserError, match="--int8 is not possible here: the search is not plain"):
        FastGenerator([built], words, search_strategy=Sampling(words)).generate([built], sample)
    latent = peaked(LATENT)
    latent.int8 = True
    assert "8-bit" in unsupported(FastGenerator([latent], words), sample)


@pytest.mark.parametrize(
    "flags, reason",
    (
        ("--cross-self-attention --no-cross-attention", "prepends_source"),
        ("--scale-heads", "c_attn"),
    ),
)
def test_models_that_are_left_to_fairseq(flags, reason):
    if "--scale-heads" in flags:
        built = peaked()
        built.decoder.layers[1].c_attn = torch.nn.Parameter(torch.ones(2))
    else:
        built = build(flags).eval()
    assert reason in unsupported_model(built)


def test_a_stock_transformer_is_left_to_fairseq():
    assert "TransformerModel" in unsupported_model(build("", "transformer"))


def test_scores_that_are_nan_are_an_error():
    built = peaked()
    built.decoder.output_projection.weight.data.fill_(torch.nan)
    with pytest.raises(ValueError, match="sentence 1 of the batch has no translation"):
        FastGenerator([built], dictionary(), max_len_b=3).generate([built], sources())


def test_int8_is_close():
    built = peaked(PRE_NORM).float()
    generator = FastGenerator([built], dictionary(), beam_size=3, max_len_b=5)
    exact = generator.generate([built], sources())
    built.int8 = True
    rounded = generator.generate([built], sources())
    for one, other in zip(exact, rounded):
        assert one[0]["score"] != other[0]["score"]
        torch.testing.assert_close(one[0]["score"], other[0]["score"], rtol=0.1, atol=0.1)
