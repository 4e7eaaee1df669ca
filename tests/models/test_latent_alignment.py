"""The model with ``--latent-alignment``: decoding, TorchScript, training and its flags."""

import io
import re

import pytest
import torch
from fairseq.logging import metrics
from fairseq.sequence_generator import SequenceGenerator
from helpers import MODEL_TOLERANCE, batch, build, dictionary, entmax_oracle, loss, parse

from user_dir.errors import UserError
from user_dir.guards.short_log import training_line

FLAGS = "--latent-alignment --latent-alignment-top-k 3"


def outputs(model, sample):
    return model(sample["src_tokens"], sample["src_lengths"], sample["prev_output_tokens"])


def test_the_output_is_unchanged_by_log_softmax():
    model, sample = build(FLAGS).eval(), batch()
    found, extra = outputs(model, sample)
    torch.testing.assert_close(found.log_softmax(2), found, rtol=0, atol=1e-12)
    attention = extra["attn"][0]
    assert attention.shape == (3, 6, 7)
    padding = sample["src_tokens"] == model.encoder.padding_idx
    assert (attention[padding[:, None].expand_as(attention)] == 0).all()
    features, _ = model(**given(sample), features_only=True)
    assert features.shape == (3, 6, 16)


def given(sample):
    return {name: sample[name] for name in ("src_tokens", "src_lengths", "prev_output_tokens")}


def test_every_parameter_and_alpha_learn():
    model = build(f"{FLAGS} --alpha-init 1.5").train()
    loss(model, batch()).backward()
    assert all((parameter.grad != 0).any() for parameter in model.parameters())
    assert model.alignment.alpha.a.grad != 0
    assert len(model.attentions()["decoder_context"]) == 1  # of the lower of two layers


@pytest.mark.parametrize("flags", (FLAGS, "--latent-alignment --latent-alignment-soft"))
def test_steps_equal_full_decoding(flags):
    model, sample = build(flags).eval(), batch()
    with torch.no_grad():
        encoder_out = model.encoder(sample["src_tokens"], src_lengths=sample["src_lengths"])
        previous, state = sample["prev_output_tokens"], {}
        full, _ = model.decoder(previous, encoder_out=encoder_out)
        for t in range(previous.size(1)):
            step, _ = model.decoder(previous[:, : t + 1], encoder_out=encoder_out, incremental_state=state)
            real = previous[:, t] != model.decoder.padding_idx
            torch.testing.assert_close(step[real, 0], full[real, t], **MODEL_TOLERANCE)


def test_beam_search_scores_are_those_of_the_model():
    """Hypotheses, which change places and whose sentences end at different steps, are scored anew."""
    model, sample = build(FLAGS).eval(), batch()
    search = SequenceGenerator([model], dictionary(), beam_size=3, max_len_b=8, normalize_scores=False)
    with torch.no_grad():
        for row, hypotheses in enumerate(search.generate([model], {"net_input": given(sample)})):
            source = sample["src_tokens"][row : row + 1, -sample["src_lengths"][row] :]
            for hypothesis in hypotheses:
                tokens = hypothesis["tokens"].unsqueeze(0)
                previous = torch.cat((torch.full((1, 1), dictionary().eos()), tokens[:, :-1]), dim=1)
                log_p, _ = model(source, sample["src_lengths"][row : row + 1], previous)
                score = log_p.gather(2, tokens.unsqueeze(2)).sum()
                torch.testing.assert_close(hypothesis["score"].double(), score, rtol=1e-5, atol=1e-5)


def test_padding_changes_nothing():
    model, sample = build(FLAGS).eval(), batch()
    with torch.no_grad():
        together, _ = outputs(model, sample)
        for row, length in enumerate(sample["src_lengths"].tolist()):
            source = sample["src_tokens"][row : row + 1, -length:]
            alone, _ = model(source, torch.tensor([length]), sample["prev_output_tokens"][row : row + 1])
            real = sample["prev_output_tokens"][row] != model.decoder.padding_idx
            torch.testing.assert_close(alone[0, real], together[row, real], **MODEL_TOLERANCE)


@pytest.mark.parametrize(
    "flags", (FLAGS, pytest.param("--latent-alignment --latent-alignment-soft", marks=pytest.mark.nightly))
)
def test_scripted_gives_the_same(flags):
    model, sample = build(flags).eval(), batch()
    scripted = torch.jit.script(model)
    file = io.BytesIO()
    torch.jit.save(scripted, file)
    file.seek(0)
    words = tuple(given(sample).values())
    with torch.no_grad():
        expected, _ = model(*words)
        for candidate in (scripted, torch.jit.load(file)):
            torch.testing.assert_close(candidate(*words)[0], expected, **MODEL_TOLERANCE)


def test_own_checkpoint_loads():
    trained, loaded = build(FLAGS, seed=1), build(FLAGS, seed=2)
    loaded.load_state_dict(trained.state_dict(), strict=True)
    assert torch.equal(loss(loaded, batch()), loss(trained, batch()))


def test_bfloat16_trains():
    model = build(FLAGS).to(torch.bfloat16)
    loss(model, batch()).backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


def test_the_log_line_has_the_certificate():
    metrics.reset()  # of trainings before in this process
    model = build(FLAGS).train()
    with metrics.aggregate("train"):
        model.after_update(0)
        outputs(model, batch())
        model.after_update(1)
        values = metrics.get_smoothed_values("train")
    assert 1 <= values["alignment_positions"] <= 3
    assert 0 <= values["alignment_certified"] <= 1
    assert 1 < values["alignment_alpha"] < 2
    line = training_line({**values, "loss": 3}, 1, 2, 1)
    assert re.search(r"loss 3  α \S+ \S+ \S+  [123]\.\d positions, \d+% certified", line), line


def test_positions_are_averaged_over_a_log_interval():
    model = build(FLAGS).train()
    with metrics.aggregate(new_root=True) as logged:
        for update, positions in enumerate((1.0, 2.0, 6.0), start=1):
            model.alignment.support = torch.tensor(positions)
            model.after_update(update)
    assert logged.get_smoothed_values()["alignment_positions"] == 3


def test_alpha_is_that_of_context_attention():
    model = build(f"{FLAGS} --decoder-context-fixed-alpha 1.7 --encoder-self-fixed-alpha 1.2")
    assert model.alignment.alpha.constant == 1.7
    tied = build(f"{FLAGS} --alpha-tying type")
    assert tied.alignment.alpha is tied.decoder.layers[0].encoder_attn.alpha


@pytest.mark.parametrize(
    "others", ("", "--alpha-tying type", "--attention-normalizer softmax", "--attention-normalizer rela")
)
def test_a_constant_alpha_leaves_that_of_context_attention_alone(others):
    model = build(f"{FLAGS} --latent-alignment-alpha 2 {others}")
    assert model.alignment.alpha.constant == 2
    without = build(others)
    assert (
        model.decoder.layers[0].encoder_attn.alpha.constant
        == without.decoder.layers[0].encoder_attn.alpha.constant
    )
    assert not any(name.startswith("decoder.alignment.alpha") for name in model.state_dict())
    state, keys = torch.randn(2, 3, 16).double(), torch.randn(2, 7, 16).double()
    weights, _ = model.alignment.distribution(state, keys, None)
    scores = torch.einsum("btc,bsc->bts", model.alignment.q_proj(state), keys) / 4
    expected = entmax_oracle(scores.topk(3).values.detach(), 2.0)
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-9)


BAD = {
    "--latent-alignment-top-k 3": "--latent-alignment-top-k requires --latent-alignment",
    "--latent-alignment-soft": "--latent-alignment-soft requires --latent-alignment",
    "--latent-alignment-alpha 2": "--latent-alignment-alpha requires --latent-alignment",
    "--latent-alignment --latent-alignment-alpha 0.5": "must be a number of at least 1, not 0.5",
    "--latent-alignment --latent-alignment-alpha nan": "must be a number of at least 1, not nan",
    "--latent-alignment --latent-alignment-alpha inf": "must be a number of at least 1, not inf",
    "--latent-alignment --latent-alignment-alpha 1": "with an alpha above 1",
    "--latent-alignment --latent-alignment-top-k 0": "must be a positive integer, not 0",
    "--latent-alignment --adaptive-softmax-cutoff 5": "omit --adaptive-softmax-cutoff",
    "--latent-alignment --no-cross-attention": "omit --no-cross-attention",
    "--latent-alignment --attention-normalizer softmax": "give --latent-alignment-alpha 2",
    "--latent-alignment --fixed-alpha 1": "with an alpha above 1",
    "--latent-alignment --attention-normalizer rela": "with an alpha above 1",
    "--latent-alignment --output-alpha 1.5": "omit --output-alpha",
    "--latent-alignment --quant-noise-scalar 0.1": "omit --quant-noise-scalar",
}


@pytest.mark.parametrize("flags", BAD)
def test_flags_that_contradict_are_refused(flags):
    with pytest.raises(UserError) as raised:
        parse(flags)
    assert BAD[flags] in str(raised.value)


def test_softmax_elsewhere_is_no_contradiction():
    build("--latent-alignment --latent-alignment-alpha 2 --attention-normalizer softmax")
    build("--latent-alignment --attention-normalizer softmax --decoder-context-attention-normalizer entmax15")
    build("--latent-alignment --latent-alignment-soft --attention-normalizer softmax")
