"""The masked language model with fairseq's task and criterion; its checkpoint as a post-editor's BERT."""

import pytest
import torch
from editors import SMALL, SOFTMAX, SYMBOLS, build, dictionary
from editors import task as translation_task
from fairseq import checkpoint_utils, models
from fairseq.criterions.masked_lm import MaskedLmConfig, MaskedLmLoss
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from helpers import binarise, parse

ARCH = "adaptively_sparse_masked_lm"
HEAD = ("dense.weight", "dense.bias", "layer_norm.weight", "layer_norm.bias", "output.bias")
LM_SMALL = SMALL.replace(" --max-target-positions 12", "")


@pytest.fixture
def data(tmp_path):
    words = dictionary()
    words.save(str(tmp_path / "dict.txt"))
    sentences = [[*range(6 + i % 3, 14), words.index("▁[SEP]"), *range(7, 16), words.eos()] for i in range(9)]
    binarise(tmp_path / "train", sentences)
    return tmp_path


def masked_lm(flags: str = "", seed: int = 1):
    args = parse(f"{LM_SMALL} --tokens-per-sample 40 --task masked_lm {flags}", ARCH)
    torch.manual_seed(seed)
    return args, models.build_model(args, translation_task())


def sample_of(data):
    """A batch of fairseq's own task; with numpy 2 only if the guards are at work."""
    task = MaskedLMTask.setup_task(
        MaskedLMConfig(data=str(data), tokens_per_sample=40, sample_break_mode="eos", seed=1, mask_prob=0.3)
    )
    task.load_dataset("train")
    dataset = task.dataset("train")
    return task, dataset.collater([dataset[i] for i in range(len(dataset))])


def test_it_learns_to_fill_masks(data):
    task, sample = sample_of(data)
    _, model = masked_lm()
    criterion = MaskedLmLoss(MaskedLmConfig(), task)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    losses = []
    for _ in range(60):
        loss, size, _ = criterion(model, sample)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append((loss / size).item())
    assert losses[-1] < 0.5 * losses[0]
    alphas = [attention.alpha.a.grad for attention in model.attentions()["encoder_self"]]
    assert len(alphas) == 2 and all(grad.abs().sum() > 0 for grad in alphas)


def test_masked_tokens_alone_have_the_same_logits():
    _, model = masked_lm()
    tokens = torch.randint(6, 18, (3, 7))
    chosen = torch.rand(3, 7) < 0.5
    model.eval()
    torch.testing.assert_close(model(tokens, masked_tokens=chosen)[0], model(tokens)[0][chosen])
    assert model.max_positions() == 20


def saved(data, folder):
    """A checkpoint as fairseq's trainer writes it."""
    args, model = masked_lm(SOFTMAX)
    state = {
        "cfg": {"model": args, "task": {"_name": "masked_lm", "data": str(data)}},
        "model": model.state_dict(),
        "optimizer_history": [{"num_updates": 3}],
        "extra_state": {},
    }
    path = folder / "checkpoint.pt"
    checkpoint_utils.torch_persistent_save(state, str(path))
    return path, model


def test_its_checkpoint_is_a_bert(data, tmp_path):
    """Also for a dictionary with the same symbols in another order."""
    path, bert = saved(data, tmp_path)
    words = dictionary(reversed(SYMBOLS))
    editor = build(f"{SOFTMAX} --bert {path}", own_task=translation_task(words)).float().eval()
    symbols = ["▁word1", "▁word3", "▁[SEP]", "▁word2", "▁word0", "</s>"]
    theirs, ours = (
        torch.tensor([[vocab.index(symbol) for symbol in symbols]]) for vocab in (dictionary(), words)
    )
    with torch.no_grad():
        actual, expected = (
            model.encoder(tokens)["encoder_out"][0]
            for model, tokens in ((editor, ours), (bert.eval(), theirs))
        )
    torch.testing.assert_close(actual, expected, rtol=0.0, atol=1e-5)
    assert torch.equal(editor.decoder.layers[1].fc1.weight, bert.encoder.layers[1].fc1.weight)


def test_it_has_no_sparse_output():
    with pytest.raises(SystemExit, match="--output-alpha"):
        masked_lm("--output-alpha 1.5")


def test_it_starts_from_a_bert_whose_task_added_the_mask(data, tmp_path):
    path, bert = saved(data, tmp_path)
    others = [symbol for symbol in SYMBOLS if symbol != "<mask>"]
    dictionary(others).save(str(data / "dict.txt"))
    _, model = masked_lm(f"--bert {path}", seed=2)
    rows = dictionary([*others, "<mask>"])
    expected = bert.encoder.embed_tokens.weight[[rows.index(symbol) for symbol in dictionary().symbols]]
    assert torch.equal(model.encoder.embed_tokens.weight, expected)


def test_it_starts_from_a_bert(data, tmp_path):
    """By whose rate fairseq's optimizer composite trains all but the output layer."""
    path, bert = saved(data, tmp_path)
    _, model = masked_lm(f"{SOFTMAX} --bert {path}", seed=2)
    assert model.encoder.layernorm_embedding.eps == 1e-12  # that of the BERT
    torch.testing.assert_close(model.encoder.state_dict(), bert.encoder.state_dict(), rtol=0, atol=0)
    assert not torch.equal(model.head.dense.weight, bert.head.dense.weight)
    new = {name for name, param in model.named_parameters() if getattr(param, "param_group", None) != "bert"}
    assert new == {f"head.{name}" for name in HEAD}
