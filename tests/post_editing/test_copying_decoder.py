"""The post-editor with a copy gate: an untrained one repeats the translation; the mixture; its criterion."""

from types import SimpleNamespace

import pytest
import torch
from editors import batch, build, dictionary
from fairseq.sequence_generator import SequenceGenerator

from user_dir.decoding.generator import can_search
from user_dir.entmax import entmax
from user_dir.errors import UserError
from user_dir.post_editing import PostEditingLossCriterion

WORDS = dictionary()
GATE = "--copy-gate 1.5"


def translations(sample):
    """The machine translation of each line, with </s>."""
    separator = WORDS.index("▁[SEP]")
    rows = [[t for t in row if t != WORDS.pad()] for row in sample["src_tokens"].tolist()]
    return [row[row.index(separator) + 1 :] for row in rows]


def disturbed(flags=GATE, seed=5):
    """A model whose gates and pointer are undecided."""
    model = build(flags).eval()
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.decoder.copy_gate.parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
        parameter.data += 0.4 * noise
    model.decoder.copy_gate.sentence.bias.data[0] = -9  # no sentence is left alone
    return model


@pytest.mark.parametrize("left_pad", [True, False])
@pytest.mark.parametrize("alpha", [1.5, 2])
def test_an_untrained_model_repeats_the_machine_translation(alpha, left_pad):
    model, sample = build(f"--copy-gate {alpha}").eval(), batch(left_pad)
    search = SequenceGenerator([model], WORDS, beam_size=3, max_len_b=20)
    hypotheses = search.generate([model], {"net_input": {k: v for k, v in sample.items() if k != "target"}})
    assert [best[0]["tokens"].tolist() for best in hypotheses] == translations(sample)
    assert all(best[0]["positional_scores"].eq(0).all() for best in hypotheses)
    assert not can_search(model)


def test_the_output_is_the_mixture_by_the_definition():
    model, sample = disturbed(), batch()
    inputs = sample["src_tokens"], sample["src_lengths"], sample["prev_output_tokens"]
    log_p, extra = model(*inputs)
    decisions, (features, _) = extra["decisions"], model(*inputs, features_only=True)
    logits = model.decoder.output_layer(features)
    gate, pointer = entmax(decisions.gate, 1.5), entmax(decisions.pointer, 1.5)
    for row, t in ((0, 0), (1, 2), (2, 4)):
        p = torch.softmax(logits[row, t].float(), -1) * gate[row, t, 1]
        for place, token in enumerate(sample["src_tokens"][row].tolist()):
            p[token] += gate[row, t, 0] * pointer[row, t, place]
        torch.testing.assert_close(log_p[row, t].exp(), p)
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(log_p.shape[:2]))
    again = model.get_normalized_probs((log_p, extra), log_probs=False)
    torch.testing.assert_close(again, log_p.exp())


def test_decoding_step_by_step_gives_the_same():
    model, sample = disturbed(), batch()
    encoder_out = model.encoder(sample["src_tokens"], sample["src_lengths"])
    whole, _ = model.decoder(sample["prev_output_tokens"], encoder_out)
    state, previous = {}, sample["prev_output_tokens"]
    for t in range(previous.size(1)):
        step, _ = model.decoder(previous[:, : t + 1], encoder_out, incremental_state=state)
        rows = previous[:, t].ne(WORDS.pad())
        torch.testing.assert_close(step[rows, 0], whole[rows, t], rtol=1e-4, atol=1e-5)


def test_a_sentence_left_alone_is_repeated_whatever_the_other_gates_say():
    model, sample = disturbed(), batch()
    model.decoder.copy_gate.sentence.bias.data[0] = 9
    search = SequenceGenerator([model], WORDS, beam_size=2, max_len_b=20)
    hypotheses = search.generate([model], {"net_input": {k: v for k, v in sample.items() if k != "target"}})
    assert [best[0]["tokens"].tolist() for best in hypotheses] == translations(sample)


def criterion(smoothing=0.0):
    task = SimpleNamespace(target_dictionary=WORDS)
    return PostEditingLossCriterion(task, False, smoothing)


def as_sample(triplets):
    inputs = {key: triplets[key] for key in ("src_tokens", "src_lengths", "prev_output_tokens")}
    return {
        "net_input": inputs,
        "target": triplets["target"],
        "ntokens": int(triplets["target"].ne(WORDS.pad()).sum()),
    }


def test_of_right_translations_only_the_decision_on_the_sentence_is_to_be_learned():
    """Of triplets that are already right, an untrained gate decides right throughout."""
    model, triplets = build(GATE).train(), batch()
    rows = translations(triplets)
    longest = max(map(len, rows))
    pad, eos = WORDS.pad(), WORDS.eos()
    triplets["target"] = torch.tensor([row + [pad] * (longest - len(row)) for row in rows])
    triplets["prev_output_tokens"] = torch.tensor(
        [[eos, *row[:-1]] + [pad] * (longest - len(row)) for row in rows]
    )
    loss, size, logged = criterion()(model, as_sample(triplets))
    assert logged["gate_right"] == logged["copied"] == size == logged["ntokens"]
    assert logged["gate_loss"] == logged["pointer_loss"] == logged["vocabulary_loss"] == 0
    assert loss == logged["sentence_loss"] > 0


def test_the_vocabulary_learns_the_pieces_that_are_not_copied():
    model, sample = disturbed(), as_sample(batch())
    features, extra = model(**sample["net_input"], features_only=True)
    log_p = model.decoder.output_layer(features).log_softmax(-1)
    arguments = extra["decisions"].translation, sample["net_input"]["prev_output_tokens"], sample["target"]
    _, copied, _ = model.decoder.copy_gate.targets(*arguments)
    expected = [
        -log_p[row, t, token]
        for row, tokens in enumerate(sample["target"].tolist())
        for t, token in enumerate(tokens)
        if token != WORDS.pad() and not copied[row, t]
    ]
    _, size, logged = criterion()(model, sample)
    assert 0 < len(expected) < size
    torch.testing.assert_close(logged["vocabulary_loss"], sum(expected).detach(), check_dtype=False)


@pytest.mark.parametrize("training", [True, False])
def test_gradients_reach_every_gate(training):
    model = disturbed().train(training)
    model.decoder.copy_gate.sentence.bias.data[0] = 0  # undecided, too
    loss, _, logged = criterion(0.1)(model, as_sample(batch()))
    loss.backward()
    assert loss.isfinite() and all(logged[f"{name}_loss"] >= 0 for name in ("gate", "pointer", "sentence"))
    for name, parameter in model.decoder.copy_gate.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all() and parameter.grad.any(), name


def test_other_criterions_and_models_are_refused():
    model = build(GATE).train()
    output = model(**as_sample(batch())["net_input"])
    with pytest.raises(SystemExit, match="post_editing_loss"):
        model.get_normalized_probs(output, log_probs=True)
    with pytest.raises(SystemExit, match="--copy-gate"):
        criterion()(build().train(), as_sample(batch()))
    for wrong in ("0.5", "2.5", "nan"):
        with pytest.raises(UserError, match="--copy-gate"):
            build(f"--copy-gate {wrong}")
    with pytest.raises(UserError, match="--output-alpha"):
        build(f"{GATE} --output-alpha 1.5")
