"""The model with ``--latent-alignment``: decoding, training and its flags."""

import pytest
import torch
from fairseq.logging import metrics
from fairseq.sequence_generator import SequenceGenerator
from helpers import batch, build, dictionary, entmax_oracle

FLAGS = "--latent-alignment --latent-alignment-top-k 3"


def outputs(model, sample):
    return model(sample["src_tokens"], sample["src_lengths"], sample["prev_output_tokens"])


def test_the_output_is_unchanged_by_log_softmax():
    model, sample = build(FLAGS).eval(), batch()
    log_p, extra = outputs(model, sample)
    torch.testing.assert_close(log_p.log_softmax(2), log_p, rtol=0, atol=1e-12)
    attention = extra["attn"][0]
    assert attention.shape == (3, 6, 7)
    padding = sample["src_tokens"] == model.encoder.padding_idx
    assert (attention[padding[:, None].expand_as(attention)] == 0).all()
    features, _ = model(**inputs(sample), features_only=True)
    assert features.shape == (3, 6, 16)


def inputs(sample):
    return {name: sample[name] for name in ("src_tokens", "src_lengths", "prev_output_tokens")}


def test_beam_search_scores_are_those_of_the_model():
    """Hypotheses, which change places and whose sentences end at different steps, are scored anew."""
    model, sample = build(FLAGS).eval(), batch()
    search = SequenceGenerator([model], dictionary(), beam_size=3, max_len_b=8, normalize_scores=False)
    with torch.no_grad():
        for row, hypotheses in enumerate(search.generate([model], {"net_input": inputs(sample)})):
            source = sample["src_tokens"][row : row + 1, -sample["src_lengths"][row] :]
            for hypothesis in hypotheses:
                tokens = hypothesis["tokens"].unsqueeze(0)
                previous = torch.cat((torch.full((1, 1), dictionary().eos()), tokens[:, :-1]), dim=1)
                log_p, _ = model(source, sample["src_lengths"][row : row + 1], previous)
                score = log_p.gather(2, tokens.unsqueeze(2)).sum()
                torch.testing.assert_close(hypothesis["score"].double(), score, rtol=1e-5, atol=1e-5)


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


def test_alpha_is_that_of_context_attention():
    model = build(f"{FLAGS} --decoder-context-fixed-alpha 1.7 --encoder-self-fixed-alpha 1.2")
    assert model.alignment.alpha.constant == 1.7
    tied = build(f"{FLAGS} --alpha-tying type")
    assert tied.alignment.alpha is tied.decoder.layers[0].encoder_attn.alpha


@pytest.mark.parametrize("others", ("--alpha-tying type", "--attention-normalizer softmax"))
def test_a_constant_alpha_leaves_that_of_context_attention_alone(others):
    model = build(f"{FLAGS} --latent-alignment-alpha 2 {others}")
    assert model.alignment.alpha.constant == 2
    without = build(others)
    assert (
        model.decoder.layers[0].encoder_attn.alpha.constant
        == without.decoder.layers[0].encoder_attn.alpha.constant
    )
    assert not any(name.startswith("decoder.alignment.alpha") for name in model.state_dict())
    state, source = torch.randn(2, 3, 16).double(), torch.randn(7, 2, 16).double()
    weights, _ = model.alignment.distribution(state, source, None)
    keys = model.alignment.k_proj(source)
    scores = torch.einsum("btc,sbc->bts", model.alignment.q_proj(state), keys) / 4
    expected = entmax_oracle(scores.topk(3).values.detach(), 2.0)
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-9)
