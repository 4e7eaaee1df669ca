"""The learnable α: initialisation, updates and state."""

import math

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

from user_dir.attention import Alpha, AlphaConfig
from user_dir.attention.normalizers import NORMALIZERS

SCHEDULE = {"alpha_schedule_start": 1.1, "alpha_schedule_end": 1.8, "alpha_schedule_updates": 200}


def alpha(heads=8, **settings):
    return Alpha(heads, AlphaConfig(**settings))


def values(module):
    return module().detach().flatten()


def test_the_default_is_the_paper_s():
    module = alpha(20000)
    assert module().shape == (20000, 1, 1) and module.a.shape == (20000,)
    torch.testing.assert_close(values(module), 1 + torch.sigmoid(module.a.detach()))
    # a ~ N(0, 1): mean and standard deviation to within five standard errors, and the share within one σ
    a = module.a.detach()
    assert abs(a.mean()) < 5 / math.sqrt(20000) and abs(a.std() - 1) < 5 / math.sqrt(40000)
    assert abs((a.abs() < 1).float().mean() - math.erf(math.sqrt(0.5))) < 0.02


@pytest.mark.parametrize("multiplier", (1.0, 10.0, 0.1))
@pytest.mark.parametrize("start", (1.001, 1.5, 1.99))
def test_initial_value(start, multiplier):
    module = alpha(alpha_init=start, alpha_lr_multiplier=multiplier)
    torch.testing.assert_close(values(module), torch.full((8,), start), rtol=0, atol=1e-6)


@pytest.mark.parametrize("tying", ("layer", "type", "model"))
def test_tied_heads_share_one_parameter(tying):
    module = alpha(alpha_tying=tying)
    assert module.a.shape == (1,) and module().shape == (1, 1, 1)


@pytest.mark.parametrize(
    "name, value", [(name, cls.alpha) for name, cls in NORMALIZERS.items() if cls.alpha is not None]
)
def test_named_normalizers_are_constant(name, value):
    module = alpha(attention_normalizer=name)
    assert value == {"softmax": 1.0, "entmax15": 1.5, "sparsemax": 2.0}.get(name, value)
    assert module().flatten().tolist() == [value] and module.value() == value
    assert list(module.parameters()) == [] and module.state_dict() == {}


@pytest.mark.parametrize(
    "kind, share", [("linear", lambda x: x), ("cosine", lambda x: math.sin(math.pi * x / 2) ** 2)]
)
@pytest.mark.parametrize("then", ("fixed", "learned"))
def test_schedule(kind, share, then):
    module = alpha(alpha_schedule=kind, alpha_schedule_then=then, **SCHEDULE)
    for update in (0, 1, 50, 100, 150, 199):
        module.set_num_updates(update)
        expected = torch.tensor(1.1 + 0.7 * share(update / 200))
        torch.testing.assert_close(values(module), expected.expand(module().numel()), rtol=0, atol=1e-6)
        assert module.scheduled_alpha() == pytest.approx(expected.item(), abs=1e-6)
    module.set_num_updates(0)
    assert module.scheduled_alpha() == 1.1
    for update in (200, 5000):
        module.set_num_updates(update)
        assert module.scheduled_alpha() == pytest.approx(1.8, abs=1e-15)
        torch.testing.assert_close(
            values(module), torch.tensor(1.8).expand(module().numel()), rtol=0, atol=1e-6
        )


def gradient(module):
    module.zero_grad()
    module().square().sum().backward()
    return module.a.grad


def test_schedule_then_learned_moves_the_parameter_only_afterwards():
    module = alpha(alpha_schedule="cosine", alpha_schedule_then="learned", **SCHEDULE)
    assert module.a.shape == (8,)
    for update in (0, 199):
        module.set_num_updates(update)
        assert (gradient(module) == 0).all()  # not None: workers exchange every gradient
    module.set_num_updates(200)
    assert (gradient(module) > 0).all()


@hypothesis.settings(max_examples=40, deadline=None, derandomize=True)
@hypothesis.given(
    st.floats(1, 4),
    st.floats(1e-3, 4),
    st.sampled_from((0.1, 1.0, 100.0)),
    st.sampled_from((torch.float32, torch.float16, torch.bfloat16)),
    st.sampled_from((torch.optim.SGD, torch.optim.Adam, torch.optim.Adagrad)),
    st.floats(1e-4, 1e4),
    st.lists(st.one_of(st.floats(-1e6, 1e6), st.floats(-20, 20)), min_size=4, max_size=4),
    st.booleans(),
)
def test_never_leaves_its_bounds(low, width, multiplier, dtype, optimizer, lr, a, upwards):
    bounds = {"alpha_min": low, "alpha_max": low + width}
    module = alpha(4, **bounds, alpha_lr_multiplier=multiplier, alpha_freeze_updates=1).to(dtype)
    kept = torch.nn.Parameter(torch.tensor(a))  # the float32 copy that mixed precision trains
    step = optimizer([kept], lr=lr)
    for update in range(4):
        module.set_num_updates(update)
        with torch.no_grad():
            module.a.copy_(kept)
        alphas = values(module)
        assert alphas.dtype == torch.float32 and (alphas >= 1).all()
        assert (alphas >= torch.tensor(low)).all() and (alphas <= torch.tensor(low + width)).all()
        module.zero_grad()
        (module() if upwards else -module()).sum().backward()
        assert module.a.grad.isfinite().all()
        kept.grad = module.a.grad.float()
        step.step()


@pytest.mark.parametrize("value", (float("inf"), -float("inf"), 200.0, -200.0))
@pytest.mark.parametrize("settings", ({}, {"alpha_freeze_updates": 5}))
def test_the_gradient_is_zero_where_the_sigmoid_is_flat(value, settings):
    module = alpha(3, alpha_min=1.84, alpha_max=1.902, **settings)  # 1.84 + 0.062 is beyond 1.902 in float32
    with torch.no_grad():
        module.a.fill_(value)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        module.to(dtype)
        assert values(module).tolist() == torch.full((3,), 1.902 if value > 0 else 1.84).tolist()
        assert torch.equal(gradient(module), torch.zeros(3, dtype=dtype))


def test_freezing():
    module = alpha(alpha_freeze_updates=5)
    start = values(module)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    for update in range(8):
        module.set_num_updates(update)
        grad = gradient(module)
        assert (grad == 0).all() if update < 5 else (grad > 0).all()
        optimizer.step()
        assert torch.equal(values(module), start) == (update < 5)


@pytest.mark.parametrize("then", ("fixed", "learned"))
def test_state_from_the_middle_of_a_schedule(then):
    settings = {"alpha_schedule": "linear", "alpha_schedule_then": then, **SCHEDULE}
    trained = alpha(**settings)
    trained.set_num_updates(120)
    loaded = alpha(**settings)
    assert not torch.equal(values(loaded), values(trained))
    loaded.set_num_updates(120)  # as fairseq does when loading a checkpoint
    loaded.load_state_dict(trained.state_dict())
    assert torch.equal(values(loaded), values(trained))
    assert loaded.scheduled_alpha() == pytest.approx(1.1 + 0.7 * 120 / 200)


@pytest.mark.parametrize(
    "settings", ({}, {"alpha_schedule": "linear", "alpha_schedule_then": "learned", **SCHEDULE})
)
def test_a_state_without_alpha_keeps_the_initial_value(settings):
    module = alpha(**settings)
    before = values(module)
    state = {"other.weight": torch.ones(1)}
    module.upgrade_state_dict_named(state, "layer.alpha")
    assert {f"layer.alpha.{key}" for key in module.state_dict()} == set(state) - {"other.weight"}
    module.load_state_dict({key: state[f"layer.alpha.{key}"] for key in module.state_dict()})
    assert torch.equal(values(module), before)


@pytest.mark.parametrize("multiplier", (0.1, 2.0, 10.0))
def test_learning_rate_multiplier_under_adam(multiplier):
    def path(**settings):
        module = alpha(4, alpha_init=1.4, **settings)
        optimizer = torch.optim.Adam(module.parameters(), lr=1e-3, eps=0.0)
        logits = []
        for _ in range(10):
            optimizer.zero_grad()
            (module() - 1.9).square().sum().backward()
            optimizer.step()
            logits.append(torch.logit(values(module).double() - 1))
        return torch.stack(logits) - torch.logit(torch.tensor(0.4, dtype=torch.float64))

    plain = path()
    multiplied = path(alpha_lr_multiplier=multiplier)
    torch.testing.assert_close(multiplied[0], multiplier * plain[0], rtol=1e-2, atol=1e-6)
    # later steps are slightly affected by the change of the gradient
    torch.testing.assert_close(multiplied, multiplier * plain, rtol=3e-2, atol=1e-5)


# -------------------------------------------------------------------------- what AlphaConfig refuses

MOVING = {"alpha_schedule": "linear", "alpha_schedule_updates": 10}
INF, NAN = math.inf, math.nan
REFUSED = [
    ({"attention_normalizer": "relu"}, "attention_normalizer 'relu': .*entmax15, sparsemax"),
    ({"alpha_schedule": "step"}, "alpha_schedule 'step': .*none, linear, cosine"),
    ({"alpha_min": 0.9}, r"alpha_min < alpha_max .* not 0\.9 and 2"),
    ({"alpha_min": NAN}, "not nan and 2"),
    ({"fixed_alpha": 0.5}, "fixed_alpha must be from 1 to 1000, not 0.5"),
    ({"fixed_alpha": 1.5, "attention_normalizer": "softmax"}, "fixed_alpha .* not softmax"),
    ({"alpha_init": 1.0}, "alpha_init must lie between alpha_min 1 and alpha_max 2, not 1"),
    ({"alpha_init_mean": NAN}, "alpha_init_mean .* nan"),
    ({"alpha_schedule": "cosine"}, "alpha_schedule_updates .* not 0"),
    ({**MOVING, "alpha_schedule_start": 0.9}, "alpha_schedule_start .* 0.9"),
    ({**MOVING, "alpha_schedule_end": 2.0, "alpha_schedule_then": "learned"}, "alpha_schedule_end .* not 2"),
    ({**MOVING, "fixed_alpha": 1.5}, "alpha_schedule .* without fixed_alpha"),
    ({**MOVING, "attention_normalizer": "entmax15"}, "alpha_schedule requires attention_normalizer entmax"),
    ({**MOVING, "alpha_init": 1.5}, "alpha_init contradicts alpha_schedule"),
]


@pytest.mark.parametrize("settings, words", REFUSED, ids=lambda x: str(x) if isinstance(x, dict) else "")
def test_refused_with_field_and_value(settings, words):
    with pytest.raises(ValueError, match=words):
        AlphaConfig(**settings)


@pytest.mark.parametrize(
    "settings, constant, scheduled, learned",
    [
        ({}, None, False, True),
        ({"attention_normalizer": "softmax"}, 1.0, False, False),
        ({"fixed_alpha": 2}, 2, False, False),  # as YAML reads a number without a decimal point
        ({"alpha_min": 1.01, "alpha_max": 4.0, "alpha_init": 3.9}, None, False, True),
        (MOVING, None, True, False),
        ({**MOVING, "alpha_schedule_start": 2.0, "alpha_schedule_then": "learned"}, None, True, True),
    ],
    ids=str,
)
def test_kinds_of_alpha(settings, constant, scheduled, learned):
    config = AlphaConfig(**settings)
    assert (config.constant, config.scheduled, config.learned) == (constant, scheduled, learned)
