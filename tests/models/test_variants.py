"""Every normalizer, and length scaling, in whole models: padding, decoding step by step."""

import own_normalizer
import pytest
import torch
from helpers import MODEL_TOLERANCE, batch, build, build_language_model, dictionary, loss
from invariants import assert_padding_changes_nothing, assert_steps_equal_the_whole, outputs

from user_dir.attention.normalizers import NORMALIZERS, Normalizer, register
from user_dir.attention.normalizers.alpha_entmax import AlphaEntmax

VARIANTS = {
    **{name: f"--attention-normalizer {name}" for name in (*NORMALIZERS, "own")},
    "scaled α-entmax": "--length-scaling",
    "scaled softmax": "--attention-normalizer softmax --length-scaling",
    "scaled rela": "--attention-normalizer rela --length-scaling",
    "tied": "--alpha-tying model",
    "only one type": "--decoder-context-attention-normalizer rela --encoder-self-attention-normalizer fixed",
}

LATENT = {
    "latent alignment": "--latent-alignment --latent-alignment-top-k 3",
    "soft alignment": "--latent-alignment --latent-alignment-soft",
}
MODELS = {**VARIANTS, **LATENT}


@pytest.fixture(autouse=True, scope="module")
def _own():
    with own_normalizer.registered():
        yield


RARELY = ("entmax15", "sparsemax", "scaled softmax", "scaled rela", "tied")


def by_night(names) -> list:
    return [pytest.param(name, marks=pytest.mark.nightly) if name in RARELY else name for name in names]


every_model = pytest.mark.parametrize("name", by_night(MODELS))


@pytest.fixture(params=by_night(VARIANTS), ids=lambda name: name.replace(" ", "_"))
def flags(request):
    return VARIANTS[request.param]


def test_every_parameter_learns(flags):
    model = build(flags)
    value = loss(model, batch())
    value.backward()
    unused = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert value.isfinite() and unused == []
    wrong = [name for name, parameter in model.named_parameters() if not parameter.grad.isfinite().all()]
    assert wrong == []
    own = {"gated_norm.gate": "rela", "gated_norm.scale": "rela", "length_scaling.gamma.weight": "--length"}
    for name, flag in own.items():
        grads = [p.grad for key, p in model.named_parameters() if key.endswith(name)]
        assert bool(grads) == (flag in flags) and all(grad.any() for grad in grads)


def test_the_other_parameters_do_not_depend_on_the_variant(flags):
    plain, variant = build("--attention-normalizer softmax").state_dict(), build(flags).state_dict()
    assert all(torch.equal(variant[name], value) for name, value in plain.items())


@every_model
def test_padding_changes_nothing(name):
    model, sample = build(MODELS[name]).eval(), batch()
    assert_padding_changes_nothing(model, sample)
    right = outputs(model, batch(left_pad=False))
    torch.testing.assert_close(right, outputs(model, sample), **MODEL_TOLERANCE)


@every_model
def test_step_by_step_equals_the_whole_sentence(name):
    assert_steps_equal_the_whole(build(MODELS[name]).eval(), batch())


def test_folded_beams_equal_repeated_sentences(flags):
    """As in beam search: the keys of context attention are stored once per sentence."""
    model, beam = build(flags).eval(), 2
    sample = batch()
    encoded = model.encoder(sample["src_tokens"], sample["src_lengths"])
    order = torch.arange(3).repeat_interleave(beam)
    repeated = model.encoder.reorder_encoder_out(encoded, order)
    tokens = sample["prev_output_tokens"][order]
    expected = model.decoder(tokens[:, :1], encoder_out=repeated, incremental_state={})[0]
    for layer in model.decoder.layers:
        layer.encoder_attn.set_beam_size(beam)
    actual = model.decoder(tokens[:, :1], encoder_out=repeated, incremental_state={})[0]
    torch.testing.assert_close(actual, expected, **MODEL_TOLERANCE)


def test_a_normalizer_of_ones_own_computes_what_it_says():
    """In a module: its weights are those of the scores, and outputs are the values with these weights."""
    model, sample = build("--attention-normalizer own").eval(), batch()
    attention, x = model.encoder.layers[0].self_attn, torch.randn(7, 3, 16, dtype=torch.float64)
    padding = sample["src_tokens"] == dictionary().pad()
    output, weights = attention(x, x, x, key_padding_mask=padding, need_head_weights=True)
    projections = attention.q_proj, attention.k_proj, attention.v_proj
    query, key, value = (project(x).view(7, 3, 4, 4).permute(1, 2, 0, 3) for project in projections)
    scores = (query @ key.transpose(2, 3) / 2).masked_fill(padding[:, None, None], -torch.inf)
    expected = 1 / (1 + (-scores).exp())  # (B, H, T, S)
    torch.testing.assert_close(weights.transpose(0, 1).double(), expected, rtol=1e-6, atol=1e-7)
    mixed = (expected @ value).permute(2, 0, 1, 3).flatten(2)
    torch.testing.assert_close(output, attention.out_proj(mixed), **MODEL_TOLERANCE)


@pytest.mark.parametrize("backend", ("fused", "dense"))
def test_only_normalizers_that_have_fused_kernels_accept_them(backend):
    for name, normalizer in NORMALIZERS.items():
        flags = f"--attention-normalizer {name} --attention-backend {backend}"
        if backend == "dense" or issubclass(normalizer, AlphaEntmax):
            assert build(flags).encoder.layers[0].self_attn.backend == backend
        else:
            with pytest.raises(SystemExit, match=f"--attention-normalizer {name}"):
                build(flags)


def test_a_normalizer_is_described_and_has_a_name_of_its_own():
    class Another(Normalizer):
        name, title, equation, source = "rela", "another", "s", "nobody"

    with pytest.raises(ValueError, match="'rela'"):
        register(Another)
    Another.name, Another.equation = "another", ""
    with pytest.raises(ValueError, match=r"Another .* equation"):
        register(Another)
    assert "another" not in NORMALIZERS


def test_weights_of_every_head_can_be_read():
    model, sample = build("--attention-normalizer fixed").eval(), batch()
    attention = model.encoder.layers[0].self_attn
    assert attention.normalizer.heads == 3
    x = torch.randn(7, 3, 16, dtype=torch.float64)
    padding = sample["src_tokens"] == dictionary().pad()
    _, weights = attention(x, x, x, key_padding_mask=padding, need_head_weights=True)
    assert weights.shape == (4, 3, 7, 7)
    torch.testing.assert_close(weights[0, 0], torch.eye(7))
    torch.testing.assert_close(weights[3].sum(-1), torch.ones(3, 7))


def test_a_language_model(flags):
    model = build_language_model(flags.replace("decoder-context", "decoder-self"))
    tokens = torch.randint(4, 20, (2, 6))
    whole, state = model(tokens)[0], {}
    steps = [model.decoder(tokens[:, : i + 1], incremental_state=state)[0] for i in range(6)]
    torch.testing.assert_close(torch.cat(steps, 1), whole, **MODEL_TOLERANCE)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--attention-normalizer rela --attention-backend fused", "use auto"),
        ("--attention-normalizer fixed --encoder-attention-heads 1", "at least 2 attention heads"),
    ],
)
def test_invalid_flags(flags, words):
    with pytest.raises(SystemExit, match=words):
        build(flags)
