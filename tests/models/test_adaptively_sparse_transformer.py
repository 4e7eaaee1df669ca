"""The whole model: equal to stock fairseq at α = 1, and the additions of α."""

import pytest
import torch
from fairseq.logging import metrics
from helpers import MODEL_TOLERANCE, batch, build, loss

# both pre-norm, which is only our default
PRE_NORM = "--encoder-normalize-before --decoder-normalize-before"
HEADS = {"encoder_self": 4, "decoder_self": 2, "decoder_context": 2}


def stock(flags="", seed=1):
    return build(f"{PRE_NORM} {flags}", "transformer", seed)


def alpha_parameters(model):
    return {id(p): p for name, p in model.named_parameters() if name.endswith("alpha.a")}


# ----------------------------------------------------------------------------- against stock fairseq


@pytest.mark.usefixtures("stock_in_full_precision")
@pytest.mark.parametrize("left_pad", (True, False))
@pytest.mark.parametrize(
    "flags",
    ("--attention-normalizer softmax", "--fixed-alpha 1 --decoder-self-attention-normalizer softmax"),
)
def test_at_alpha_one_equals_stock(flags, left_pad):
    ours, theirs = build(flags, seed=2), stock(seed=3)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    sample = batch(left_pad)
    losses = []
    for model in (ours, theirs):
        model.train()
        losses.append(loss(model, sample))
        losses[-1].backward()
    torch.testing.assert_close(losses[0], losses[1], **MODEL_TOLERANCE)
    gradients = {name: parameter.grad for name, parameter in ours.named_parameters()}
    expected = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    assert gradients.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(
            gradients[name], gradient, **MODEL_TOLERANCE, msg=lambda text, name=name: f"{name}: {text}"
        )

    with torch.no_grad():
        for model in (ours, theirs):
            model.eval()
        outputs = [
            model(sample["src_tokens"], sample["src_lengths"], sample["prev_output_tokens"])
            for model in (ours, theirs)
        ]
    torch.testing.assert_close(outputs[0][0], outputs[1][0], **MODEL_TOLERANCE)
    torch.testing.assert_close(
        outputs[0][1]["attn"][0], outputs[1][1]["attn"][0], check_dtype=False, rtol=0, atol=1e-6
    )


@pytest.mark.usefixtures("stock_in_full_precision")
@pytest.mark.parametrize(
    "flags",
    (
        "--cross-self-attention --no-cross-attention",
        "--share-all-embeddings",
        "--encoder-learned-pos --decoder-learned-pos --layernorm-embedding",
        "--decoder-embed-dim 8 --decoder-output-dim 12",
    ),
)
def test_stock_flags_work_as_in_stock(flags):
    ours, theirs = build(f"--attention-normalizer softmax {flags}", seed=2), stock(flags, seed=3)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    torch.testing.assert_close(loss(ours, batch()), loss(theirs, batch()), **MODEL_TOLERANCE)


@pytest.mark.parametrize(
    "flags",
    (
        "",
        "--alpha-tying type",
        "--alpha-schedule linear --alpha-schedule-updates 5 --alpha-schedule-then learned",
    ),
)
def test_a_stock_checkpoint_loads(flags):
    ours, theirs = build(flags, seed=2), stock(seed=3)
    before = {name: [layer.clone() for layer in layers] for name, layers in ours.alphas().items()}
    ours.load_state_dict(theirs.state_dict(), strict=True)
    state = ours.state_dict()
    for name, value in theirs.state_dict().items():
        assert torch.equal(state[name], value), name
    for name, layers in ours.alphas().items():
        assert all(torch.equal(a, b) for a, b in zip(layers, before[name]))


# --------------------------------------------------------------------------------- start and sharing


@pytest.mark.parametrize("flags", ("", "--alpha-init 1.3", "--decoder-self-attention-normalizer sparsemax"))
def test_models_that_differ_in_alpha_have_equal_initial_weights(flags):
    state, plain = build(flags).state_dict(), stock().state_dict()
    for name, value in plain.items():
        assert torch.equal(state[name], value), name


@pytest.mark.parametrize("tying, parameters", [("none", 16), ("layer", 6), ("type", 3), ("model", 1)])
def test_tying(tying, parameters):
    model = build(f"--alpha-tying {tying}")
    assert sum(p.numel() for p in alpha_parameters(model).values()) == parameters
    owners = {
        name: [id(attention.alpha) for attention in layers] for name, layers in model.attentions().items()
    }
    kinds = {"none": 6, "layer": 6, "type": 3, "model": 1}[tying]
    assert len({owner for layers in owners.values() for owner in layers}) == kinds
    if tying == "type":
        assert all(len(set(layers)) == 1 for layers in owners.values())
    alphas = model.alphas()
    for name, layers in alphas.items():
        assert [layer.shape for layer in layers] == [(HEADS[name],)] * 2
        if tying != "none":
            assert all((layer == layer[0]).all() for layer in layers)
    loss(model, batch()).backward()
    assert all((p.grad != 0).all() for p in alpha_parameters(model).values())


def test_settings_per_attention_type():
    model = build(
        "--encoder-self-fixed-alpha 1.2 --decoder-self-alpha-init 1.6 "
        "--decoder-context-attention-normalizer softmax"
    )
    alphas = model.alphas()
    for name, value in (("encoder_self", 1.2), ("decoder_self", 1.6), ("decoder_context", 1.0)):
        for layer in alphas[name]:
            torch.testing.assert_close(
                layer.double(), torch.full((HEADS[name],), value).double(), rtol=0, atol=1e-6
            )
    assert len(alpha_parameters(model)) == 2


# ------------------------------------------------------------------------------------------- training and
# decoding


def test_gradient_of_alpha_is_that_of_the_loss():
    model = build("--alpha-init 1.5")
    loss(model, batch()).backward()
    attention = model.decoder.layers[1].encoder_attn
    parameter, step = attention.alpha.a, 1e-3
    for head in range(2):
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter[head] += sign * step
                values.append(loss(model, batch()).item())
                parameter[head] -= sign * step
        difference = (values[0] - values[1]) / (2 * step)
        # α is in float32; its rounding of 1e-7 shows through a step of 1e-3
        assert parameter.grad[head].item() == pytest.approx(difference, rel=1e-3)


def test_activation_checkpointing_changes_no_gradient():
    plain, checkpointed = build(), build("--checkpoint-activations")
    for model in (plain, checkpointed):
        model.train()
        loss(model, batch()).backward()
    expected = {name: parameter.grad for name, parameter in plain.named_parameters()}
    gradients = {name: parameter.grad for name, parameter in checkpointed.named_parameters()}
    assert gradients.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(gradients[name], expected[name], **MODEL_TOLERANCE)
    assert len(checkpointed.attentions()["encoder_self"]) == 2


# -------------------------------------------------------------------------- updates and logging


def test_schedule_follows_the_updates():
    flags = "--alpha-schedule linear --alpha-schedule-end 1.8 --alpha-schedule-updates 8"
    model = build(flags)
    for update, value in ((0, 1.0), (2, 1.2), (8, 1.8), (20, 1.8)):
        model.set_num_updates(update)
        for layers in model.alphas().values():
            for layer in layers:
                torch.testing.assert_close(layer, torch.full_like(layer, value), rtol=0, atol=1e-6)
    trained, loaded = build(flags), build(flags)
    trained.set_num_updates(4)
    loaded.set_num_updates(4)  # as fairseq does when loading a checkpoint
    loaded.load_state_dict(trained.state_dict())
    assert torch.equal(loss(loaded, batch()), loss(trained, batch()))
    assert not torch.equal(loss(loaded, batch()), loss(build(flags), batch()))


def test_summary_of_alpha_is_logged():
    model = build("--decoder-self-attention-normalizer sparsemax")
    model.train()
    with metrics.aggregate(new_root=True) as log:
        model.after_update(1)
        with torch.no_grad():
            model.encoder.layers[0].self_attn.alpha.a.fill_(3.0)
        model.after_update(2)
    values = log.get_smoothed_values()
    assert {name for name in values if name.startswith("alpha")} == {
        f"alpha_{name}_{kind}"
        for name in ("encoder_self", "decoder_context")
        for kind in ("mean", "min", "max")
    }
    for name in ("encoder_self", "decoder_context"):
        alphas = torch.stack(model.alphas()[name]).double()
        for kind, value in (("mean", alphas.mean()), ("min", alphas.min()), ("max", alphas.max())):
            assert values[f"alpha_{name}_{kind}"] == pytest.approx(value.item(), abs=6e-4)
