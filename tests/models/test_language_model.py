"""The language model: compared with fairseq's at α = 1, and causal."""

import pytest
import torch
from helpers import MODEL_TOLERANCE, build_language_model, dictionary, printed_alone

from user_dir.models import AdaptivelySparseLanguageModel


def tokens(seed=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(dictionary().nspecial, len(dictionary()), (3, 9), generator=generator)


@pytest.mark.parametrize("flags", ("", "--share-decoder-input-output-embed --decoder-output-dim 16"))
def test_at_alpha_one_it_is_the_model_of_fairseq(flags):
    stock = build_language_model(flags, "transformer_lm")
    ours = build_language_model(f"{flags} --attention-normalizer softmax")
    ours.load_state_dict(stock.state_dict())
    expected, actual = (model(tokens()) for model in (stock, ours))
    torch.testing.assert_close(actual[0], expected[0], **MODEL_TOLERANCE)
    sample = {"target": tokens(4)}
    expected, actual = (
        model.get_normalized_probs(model(tokens()), log_probs=True, sample=sample) for model in (stock, ours)
    )
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-6)


def test_learns_an_alpha_per_head_and_is_causal():
    model = build_language_model()
    assert isinstance(model, AdaptivelySparseLanguageModel)
    values = model.alpha_values()
    assert list(values) == ["decoder_self"]
    assert [len(layer) for layer in values["decoder_self"]] == [4, 4]
    original = tokens()
    changed = original.clone()
    changed[:, 5:] = 7
    before, after = model(original)[0], model(changed)[0]
    torch.testing.assert_close(after[:, :5], before[:, :5], **MODEL_TOLERANCE)
    assert not torch.allclose(after[:, 5:], before[:, 5:])
    model.train()
    model(original)[0].logsumexp(-1).sum().backward()
    assert all(torch.isfinite(layer.self_attn.alpha.a.grad).all() for layer in model.decoder.layers)


def test_single_sentences_are_read_without_the_guards():
    """As when fairseq's hub interface samples; in a process of its own, since others load the guards."""
    program = (
        "import sys, torch, user_dir.models; from fairseq.data import TokenBlockDataset;"
        "assert 'user_dir.guards' not in sys.modules;"
        "blocks = TokenBlockDataset([torch.tensor([4, 5])], [2], None, pad=1, eos=2, break_mode='eos');"
        "print(blocks[0].tolist())"
    )
    assert printed_alone(program).endswith("[4, 5]\n")
