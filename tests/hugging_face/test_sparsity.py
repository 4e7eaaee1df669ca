"""Heads of transformers' models: their statistics against those of the analysis, and the dial."""

import json
from types import SimpleNamespace

import pytest
import torch
import transformers
from test_attention_interface import batch, build

from user_dir.analysis import statistics as measures
from user_dir.analysis.report.page import report_data
from user_dir.analysis.results import read_model, summary
from user_dir.attention import Alpha, AlphaConfig
from user_dir.attention.dial import keys_per_query
from user_dir.hugging_face import KeysPerQuery, head_statistics, sparsify

KINDS = {
    "BertForMaskedLM": ["encoder_self"],
    "GPT2LMHeadModel": ["decoder_self"],
    "LlamaForCausalLM": ["decoder_self"],
    "BartForConditionalGeneration": ["encoder_self", "decoder_self", "decoder_context"],
}


@pytest.mark.parametrize("name", KINDS)
def test_statistics_are_those_of_the_analysis(name, tmp_path):
    model, inputs = sparsify(build(name), AlphaConfig()), batch(name)
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.weight.data *= 10
    file = tmp_path / "model.heads.json"
    statistics = head_statistics(model, [inputs, {key: value[:2] for key, value in inputs.items()}], file)
    assert json.loads(file.read_text()) == statistics and statistics["sentences"] == 5
    assert list(dict.fromkeys(row["attention"] for row in statistics["heads"])) == KINDS[name]

    outputs = model(**inputs, output_attentions=True)
    weights = (getattr(outputs, "encoder_attentions", None) or outputs.attentions)[1].double()
    real = inputs["attention_mask"].bool()
    possible = real[:, :, None] & real[:, None]
    if KINDS[name] == ["decoder_self"]:
        possible = possible.tril()
    weights = weights * possible[:, None]
    attended, pairs = measures.support(weights, possible)
    twice = torch.tensor([0, 1, 2, 0, 1])  # the sentences of both batches
    row = statistics["heads"][6]
    assert (row["layer"], row["head"]) == (1, 2)
    assert row["density"] == pytest.approx((attended[:, 2] / pairs)[twice].mean().item(), abs=1e-6)
    queries = possible.any(-1)
    entropies = measures.entropies(weights)[:, 2][twice][queries[twice]]
    assert row["entropy"] == pytest.approx(entropies.mean().item(), abs=1e-6)
    keys = attended[:, 2][twice].sum() / queries[twice].sum()
    assert row["keys_per_query"] == pytest.approx(keys.item(), abs=1e-6)
    diversity = measures.diversity(weights)[twice][queries[twice]].mean().item()
    assert statistics["layers"][1]["diversity"] == pytest.approx(diversity, abs=1e-6)
    assert sum(row["density_histogram"]) == 5

    report = report_data([read_model("model", file)], 0)
    assert summary(statistics).keys() == set(KINDS[name])
    assert len(report["models"][0]["heads"]) == len(statistics["heads"])


def test_context_attention_of_a_decoder_like_bert():
    inputs = batch("BertForMaskedLM")
    halves = build("BertForMaskedLM").config, build("BertForMaskedLM").config
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(*halves)
    model = sparsify(transformers.EncoderDecoderModel(config), 1.0)
    inputs["decoder_input_ids"] = inputs["input_ids"][:, :5]
    rows = head_statistics(model, [inputs])["heads"]
    assert [row["attention"] for row in rows[::8]] == ["encoder_self", "decoder_self", "decoder_context"]
    assert {row["density"] for row in rows} == {1.0}


def test_keys_within_windows_are_counted_over_real_queries():
    model, inputs = sparsify(build("MistralForCausalLM")).train(), batch("BertForMaskedLM")
    alphas = [module for module in model.modules() if isinstance(module, Alpha)]
    for alpha in alphas:
        alpha.keys = []
    padding = inputs["attention_mask"] == 0
    attentions = model(**inputs, output_attentions=True).attentions
    for alpha, weights in zip(alphas, attentions):
        torch.testing.assert_close(alpha.keys, [keys_per_query(weights, padding)])


def test_padding_of_targets_is_left_out():
    name = "BartForConditionalGeneration"
    model, inputs = sparsify(build(name), 1.0), batch(name)
    inputs["decoder_attention_mask"] = torch.tensor([[1] * 6, [1] * 4 + [0] * 2, [1] * 2 + [0] * 4])
    rows = {row["attention"]: row for row in head_statistics(model, [inputs])["heads"]}
    assert rows["decoder_self"]["keys_per_query"] == pytest.approx((21 + 10 + 3) / 12)
    assert rows["decoder_context"]["keys_per_query"] == pytest.approx((6 * 4 + 4 * 6 + 2 * 7) / 12)
    assert {row["density"] for row in rows.values()} == {1.0}


def test_the_callback_moves_heads_and_remembers_losses():
    model, inputs = sparsify(build("BertForMaskedLM")).train(), batch("BertForMaskedLM")
    alphas = [module for module in model.modules() if isinstance(module, Alpha)]
    callback, state = KeysPerQuery(3.0, 0.5), SimpleNamespace(global_step=0, logging_steps=10)

    def train(callback, until, loss):
        while state.global_step < until:
            callback.on_step_begin(None, state, None, model=model)
            state.global_step += 1
            if state.global_step % 10 == 0:  # attention counts in no other update
                model(**inputs)
                callback.on_log(None, state, None, logs={"loss": loss})

    train(callback, 200, 1.0)
    raised = torch.cat([alpha().flatten() for alpha in alphas])
    assert (raised > 1.15).all()
    assert not any(alpha.a.requires_grad or alpha.keys for alpha in alphas)
    train(KeysPerQuery.from_state(callback.state()), 420, 3.0)
    assert (torch.cat([alpha().flatten() for alpha in alphas]) < 1.02).all()
    with pytest.raises(ValueError, match="learned"):
        KeysPerQuery().on_init_end(None, state, None, model=sparsify(build("BertForMaskedLM"), 1.5))
