"""Our beam searches against fairseq's: the same hypotheses, in the same order, with the same scores.

The one for a GPU is tested on the CPU here, beside the one in C++.
"""

import copy
import itertools
import types

import editors
import own_normalizer
import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY, FairseqEncoderDecoderModel
from fairseq.search import BeamSearch, Sampling
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from helpers import batch, build, dictionary, peaked
from torch import nn

from user_dir.attention.normalizers import NORMALIZERS
from user_dir.attention.normalizers.alpha_entmax import AlphaEntmax, Softmax
from user_dir.decoding.generator import AligningGenerator, FastGenerator, build_generator, can_search
from user_dir.errors import UserError
from user_dir.models.layers import AdaptivelySparseDecoderLayer, EntmaxMultiheadAttention

PRE_NORM = "--encoder-normalize-before --decoder-normalize-before"


class AsOnGpu(FastGenerator):
    on_device = True


SEARCH = FastGenerator, AsOnGpu, SequenceGenerator
ON_CPU = FastGenerator, SequenceGenerator
ALIGNMENT = AligningGenerator, SequenceGeneratorWithAlignment


def sources(left_pad: bool = True, whole: dict | None = None) -> dict:
    """A batch as fairseq-generate passes it on."""
    whole = whole or batch(left_pad)
    return {"net_input": {name: whole[name] for name in ("src_tokens", "src_lengths", "prev_output_tokens")}}


def searched(built, options=None, sample=None, *, kinds=SEARCH, known=True, words=None, **arguments) -> list:
    """What our first search finds in a batch, after comparing ours with fairseq's, the last of ``kinds``.

    ``known``: whether ours are expected to take the model; fairseq's is then taken by our generators.
    """
    sample, models = sample or sources(), built if isinstance(built, list) else [built]
    settings = {"beam_size": 3, "max_len_a": 1.2, "max_len_b": 4, **(options or {})}
    results = []
    for kind in kinds:
        generator = kind(models, words or dictionary(), **settings)
        assert kind is kinds[-1] or generator.can_search(sample, arguments.get("prefix_tokens")) == known
        results.append(generator.generate(models, sample, **arguments))
    for ours in results[:-1]:
        assert_same(ours, results[-1])
    return results[0]


def tokens(results: list) -> list:
    return [[hypothesis["tokens"].tolist() for hypothesis in hypotheses] for hypotheses in results]


def assert_same(ours: list, theirs: list) -> None:
    assert tokens(ours) == tokens(theirs)
    for mine, expected in zip(ours, theirs):
        for actual, other in zip(mine, expected):
            assert actual.keys() == other.keys()
            aligned = actual["attention"].numel() > 0
            for name in ("score", "positional_scores", *["attention"] * aligned):
                torch.testing.assert_close(actual[name].double(), other[name].double(), rtol=1e-5, atol=1e-5)
            if aligned:
                assert_same_alignment(actual["alignment"], other["alignment"])


def assert_same_alignment(ours: list, theirs: list) -> None:
    """Links, or weights as text with six decimals."""
    if any(isinstance(row, tuple) for row in theirs):
        assert ours == theirs
    else:
        numbers = [torch.tensor([[float(x) for x in row] for row in rows]) for rows in (ours, theirs)]
        torch.testing.assert_close(*numbers, rtol=0, atol=2e-6)


# -------------------------------------------------------------------------------------------- models

ARCHITECTURES = [
    name
    for name, kind in ARCH_MODEL_REGISTRY.items()
    if kind.__module__.startswith("user_dir.") and issubclass(kind, FairseqEncoderDecoderModel)
]


@pytest.fixture(scope="module", autouse=True)
def _own():
    with own_normalizer.registered() as normalizer:
        yield normalizer


# Sizes differ in what is not their size here, and post-editors are left to fairseq.
BY_DAY = [("adaptively_sparse_transformer", name) for name in (*NORMALIZERS, "own")]
BY_DAY += [("adaptively_sparse_post_editor", "entmax")]
CASES = [
    pytest.param(*case, marks=() if case in BY_DAY else pytest.mark.nightly)
    for case in itertools.product(ARCHITECTURES, (*NORMALIZERS, "own"))
]


@pytest.mark.parametrize(("arch", "name"), CASES)
def test_all_architectures_with_all_normalizers(arch, name):
    """By our searches if they compute the normalizer, which is α-entmax or ReLA then; else by fairseq's."""
    known, flags = NORMALIZERS[name].searchable, f"--attention-normalizer {name}"
    if "post_editor" in arch:
        built = editors.build(f"--decoder-layers 2 --decoder-attention-heads 4 {flags}", arch).eval()
        built.decoder.output_projection.bias.data.normal_(std=2)
        sample = sources(whole=editors.batch())
        translations = searched(built, {}, sample, known=False, words=editors.dictionary())
    else:
        translations = searched(peaked(flags, arch=arch), known=known)
    assert all(len(hypotheses) == 3 for hypotheses in translations)
    assert known == (NORMALIZERS[name].forward is AlphaEntmax.forward or name == "rela")


@pytest.mark.parametrize(
    "flags",
    (
        PRE_NORM,
        "--attention-normalizer sparsemax --activation-fn gelu",
        f"{PRE_NORM} --encoder-learned-pos --decoder-learned-pos --layernorm-embedding --alpha-tying layer",
        f"{PRE_NORM} --share-all-embeddings --no-decoder-final-norm --no-scale-embedding",
        "--no-token-positional-embeddings --encoder-attention-heads 1 --decoder-attention-heads 8",
        f"{PRE_NORM} --fixed-alpha 2.5 --attention-dropout 0.3 --dropout 0.2",
        f"{PRE_NORM} --length-scaling --decoder-self-attention-normalizer fixed",
        f"{PRE_NORM} --decoder-embed-dim 8 --decoder-output-dim 12",
        "--attention-normalizer rela --length-scaling",
        f"{PRE_NORM} --decoder-context-attention-normalizer rela",
    ),
)
def test_all_options_of_models(flags):
    built, sample = peaked(flags), sources(left_pad="rela" in flags)
    aligned = searched(built, {}, sample, kinds=ALIGNMENT)
    assert all(
        hypothesis["attention"].numel() and hypothesis["alignment"] for beam in aligned for hypothesis in beam
    )
    without = searched(built, {}, sample)
    assert tokens(without) == tokens(aligned)
    assert not any(hypothesis["attention"].numel() for hypotheses in without for hypothesis in hypotheses)


@pytest.mark.parametrize("kind", ("hard", "soft"))
def test_alignments_of_both_kinds(kind):
    ours = searched(peaked(PRE_NORM), {"print_alignment": kind}, sources(False), kinds=ALIGNMENT)
    width = {len(row) for hypotheses in ours for hypothesis in hypotheses for row in hypothesis["alignment"]}
    assert (width == {2}) == (kind == "hard")


# ------------------------------------------------------------------------------------------- options


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
def test_all_options_of_the_search(options):
    searched(peaked(PRE_NORM), options)


@pytest.mark.parametrize("size", (1, 3))
def test_no_ngram_is_repeated(size):
    """Although the same search without the option repeats some in every sentence."""

    def repeats(hypotheses: list) -> list[bool]:
        ngrams = [[tuple(x[i : i + size]) for i in range(len(x) - size + 1)] for x in tokens([hypotheses])[0]]
        return [len(set(sequence)) < len(sequence) for sequence in ngrams]

    options = {"max_len_b": 12, "min_len": 10}
    ours = searched(peaked(PRE_NORM), {**options, "no_repeat_ngram_size": size}, kinds=ON_CPU)
    assert all(any(repeats(hypotheses)) for hypotheses in searched(peaked(PRE_NORM), options))
    assert not any(any(repeats(hypotheses)) for hypotheses in ours)


PREFIXES = {
    "equal lengths": [[5, 9], [6, 0], [9, 9]],
    "unequal lengths": [[5, 9, 4], [6, 1, 1], [9, 4, 1]],
    "none in one sentence": [[5, 9], [1, 1], [9, 1]],
    "longer than translations may be": [[5, 9, 4, 4, 5, 6, 8, 9, 10, 11, 12, 13]] * 3,
    "with the end": [[5, 9, 2], [6, 2, 1], [2, 1, 1]],
    "with an unknown and a suppressed word": [[3, 0], [0, 3], [7, 7]],
}
"""A prefix of target tokens for each sentence; 1 is padding, and 2 the end."""


RULES = {"min_len": 4, "tokens_to_suppress": ("word3",), "unk_penalty": 1.5}


@pytest.mark.parametrize(
    ("case", "options"),
    [
        *((case, RULES) for case in PREFIXES),
        ("unequal lengths", {"beam_size": 1}),
        ("unequal lengths", {"no_repeat_ngram_size": 1}),
    ],
    ids=str,
)
def test_the_same_beginning(case, options):
    prefix = torch.tensor(PREFIXES[case])
    for flags in (PRE_NORM, f"{PRE_NORM} --output-alpha 1.5"):
        translations = searched(peaked(flags), options, kinds=ON_CPU, prefix_tokens=prefix)
        for hypotheses, symbols in zip(translations, prefix.tolist()):
            begin = [symbol for symbol in symbols if symbol != 1]
            for hypothesis in hypotheses:
                made = hypothesis["tokens"].tolist()
                possible = hypothesis["score"].isfinite()
                assert not possible or made[: len(begin)] == begin[: len(made) - 1] or begin == made


SPARSE_CASES = {
    "peaked": {"unk_penalty": -9.0, "temperature": 0.2, "min_len": 3},
    "flat": {"temperature": 5.0, "tokens_to_suppress": ("word3", "word7")},
    "fewer hypotheses": {"beam_size": 11, "len_penalty": 0.5},
    "no whole translation": {"beam_size": 1, "max_len_a": 0, "max_len_b": 1},
}


@pytest.mark.parametrize("alpha", (1.5, *(pytest.param(a, marks=pytest.mark.nightly) for a in (1.25, 2.0))))
@pytest.mark.parametrize("case", SPARSE_CASES)
def test_sparse_outputs(alpha, case):
    built = [peaked(f"{PRE_NORM} --output-alpha {alpha}", seed) for seed in (1, 2)]
    translations = [hypotheses for model in built for hypotheses in searched(model, SPARSE_CASES[case])]
    if case == "fewer hypotheses":
        assert any(len(hypotheses) < 11 for hypotheses in translations)
    if case == "no whole translation":
        assert any(hypotheses[0]["score"].isinf() for hypotheses in translations)


def test_changed_parameters_are_noticed():
    built, options = peaked(PRE_NORM), {"beam_size": 2, "max_len_b": 5}
    for fast in (False, True):
        built._is_generation_fast = fast
        generator = FastGenerator([built], dictionary(), **options)
        first = generator.generate([built], sources())
        with torch.no_grad():
            built.decoder.layers[0].fc1.weight.mul_(-1)
        second = generator.generate([built], sources())
        assert first[0][0]["score"] != second[0][0]["score"]
        assert_same(second, SequenceGenerator([built], dictionary(), **options).generate([built], sources()))


def test_scores_that_are_nan_are_an_error():
    built = peaked()
    built.decoder.output_projection.weight.data.fill_(torch.nan)
    for kind in (FastGenerator, AsOnGpu):
        with pytest.raises(ValueError, match="sentence 1 of the batch has no translation"):
            kind([built], dictionary(), max_len_b=3).generate([built], sources())


def test_int8_is_close():
    built = peaked(PRE_NORM).float()
    generator = FastGenerator([built], dictionary(), beam_size=3, max_len_b=5)
    exact = generator.generate([built], sources())
    built.int8 = True
    rounded = generator.generate([built], sources())
    for hypotheses, other in zip(exact, rounded):
        assert hypotheses[0]["score"] != other[0]["score"]
        torch.testing.assert_close(hypotheses[0]["score"], other[0]["score"], rtol=0.1, atol=0.1)


# --------------------------------------------------------------------------------- left to fairseq


def test_searches_that_are_left_to_fairseq():
    built, words, sample = peaked(), dictionary(), sources()

    def ours(models=(built,), **options):
        return FastGenerator(list(models), words, **options).can_search(sample)

    assert ours()
    assert not ours(lm_model=built)
    assert not ours(search_strategy=Sampling(words))
    assert not ours(search_strategy=BeamSearch(words), match_source_len=True)
    assert not ours(beam_size=12)
    searched([built, peaked(seed=2)], known=False, kinds=ALIGNMENT)


def test_rules_and_alignments_on_a_gpu_are_left_to_fairseq():
    class Aligning(AligningGenerator):
        on_device = True

    built, kinds = peaked(), (AsOnGpu, SequenceGenerator)
    searched(built, {"no_repeat_ngram_size": 2}, known=False, kinds=kinds)
    searched(built, known=False, kinds=kinds, prefix_tokens=torch.tensor([[5], [9], [6]]))
    searched(built, known=False, kinds=(Aligning, SequenceGeneratorWithAlignment))


def test_int8_is_refused_where_fairseqs_search_translates():
    built, words = peaked(), dictionary()
    built.int8 = True
    generators = [
        FastGenerator([built], words, search_strategy=Sampling(words)),
        AsOnGpu([built], words),
        FastGenerator([built, built], words),
    ]
    for generator in generators:
        with pytest.raises(UserError, match="--int8"):
            generator.generate([built], sources())
    with pytest.raises(UserError, match="--int8"):
        build_generator(None, None, [built], types.SimpleNamespace(score_reference=True))


@pytest.mark.parametrize(
    "flags",
    (
        "--latent-alignment --latent-alignment-alpha 1.6",
        "--activation-fn tanh",
        "--encoder-self-attention-normalizer fixed",
        "--cross-self-attention --no-cross-attention",
        "--quant-noise-pq 0.1",
    ),
)
def test_models_that_are_left_to_fairseq(flags):
    built = build(flags).eval()
    assert not can_search(built) and not can_search(built, on_device=True)


def test_a_stock_transformer_is_left_to_fairseq():
    assert not can_search(build("", "transformer").eval())


class OwnAttention(EntmaxMultiheadAttention):
    pass


class OwnLayer(AdaptivelySparseDecoderLayer):
    pass


class OwnSoftmax(Softmax):
    name = "own softmax"


def layer(model):
    return model.decoder.layers[1]


def attention(model):
    return layer(model).encoder_attn


def method(module):
    return types.MethodType(lambda self, *args, **named: type(self).forward(self, *args, **named), module)


CHANGES = {
    "subclass of a layer": lambda model: setattr(layer(model), "__class__", OwnLayer),
    "subclass of attention": lambda model: setattr(attention(model), "__class__", OwnAttention),
    "subclass of a normalizer": lambda model: setattr(attention(model), "normalizer", OwnSoftmax()),
    "other part": lambda model: setattr(layer(model), "fc1", nn.Sequential(layer(model).fc1)),
    "output norm": lambda model: setattr(attention(model), "gated_norm", nn.RMSNorm(16)),
    "own forward": lambda model: setattr(attention(model), "forward", method(attention(model))),
    "pre-hook": lambda model: attention(model).register_forward_pre_hook(lambda *_: None),
    "hook": lambda model: attention(model).out_proj.register_forward_hook(lambda *_: None),
    "parametrisation": lambda model: nn.utils.parametrizations.weight_norm(layer(model).fc1),
    "training mode": lambda model: layer(model).dropout_module.train(),
    "kept dropout": lambda model: setattr(layer(model).dropout_module, "apply_during_inference", True),
    "other types": lambda model: setattr(layer(model), "fc2", layer(model).fc2.float()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_not_passed_over(change):
    model = build("--length-scaling").eval()
    assert can_search(model)
    CHANGES[change](model)
    assert not can_search(model)


@pytest.mark.parametrize(
    "flags",
    (
        "--checkpoint-activations",
        "--encoder-layerdrop 0.3 --decoder-layerdrop 0.3",
        "--output-alpha 1.5 --alpha-schedule linear --alpha-schedule-updates 9",
        "--dropout 0.1 --attention-dropout 0.1 --activation-dropout 0.1",
    ),
)
def test_a_model_in_use_is_known(flags):
    """After what fairseq does to a model for training and for translation, and as a copy."""
    model = build(flags)
    model.train()
    model.set_num_updates(3)
    model.decoder.set_beam_size(4)
    model.make_generation_fast_()
    model.eval()
    assert can_search(model) and can_search(copy.deepcopy(model))
