"""Loading a BERT: against a random ``transformers.BertModel``, saved as Hugging Face lays it out."""

import pickle
import re
import shutil
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from editors import SYMBOLS, build, dictionary, task
from helpers import Runs, checkpoint_state

from user_dir.errors import UserError
from user_dir.post_editing.pretrained import start_bert

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{i}" for i in range(12)), "##ed", "##s"]
CLOSE = {"rtol": 0.0, "atol": 1e-5}


def our_dictionary():
    """The vocabulary in another order, padded as by prepare.py."""
    symbols = [*reversed(SYMBOLS), "s", "ed", "madeupword0000", "madeupword0001"]
    return dictionary(symbols)


@pytest.fixture(scope="module")
def bert():
    from transformers import BertConfig, BertModel

    torch.manual_seed(5)
    config = BertConfig(
        vocab_size=len(TOKENS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=24,
        max_position_embeddings=22,
        layer_norm_eps=1e-3,
    )
    model = BertModel(config).eval()
    for parameter in model.parameters():  # LayerNorms would otherwise do nothing
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.fixture(scope="module")
def saved(bert, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    bert.save_pretrained(folder)
    assert (folder / "model.safetensors").is_file()
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENS))
    return folder


@pytest.fixture
def folder(saved, tmp_path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "bert"))


def ours(folder: Path, flags: str = "", own_task=None):
    flags = f"--attention-normalizer softmax --bert {folder} {flags}"
    return build(flags, own_task=own_task or task(our_dictionary())).float().eval()


def as_pickle(folder: Path, rename) -> None:
    """Replace the safetensors by ``pytorch_model.bin`` with other names."""
    from safetensors.torch import load_file

    weights = load_file(folder / "model.safetensors")
    torch.save({rename(name): value for name, value in weights.items()}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def old_name(name: str) -> str:
    name = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
    return f"bert.{name}"


@pytest.mark.parametrize("pickled", [False, True])
@pytest.mark.parametrize("left_pad", [False, True])
def test_the_encoder_equals_transformers(bert, folder, left_pad, pickled):
    if pickled:
        as_pickle(folder, old_name)
    model, words = ours(folder), our_dictionary()
    sentences = [
        "word3 word1 ##ed [SEP] word5 word7 word0 [SEP]",
        "word2 [SEP] word4 [SEP]",
        "word9 ##s [MASK] word8 [SEP] [UNK] [CLS] word6 word2 ##s [SEP]",
    ]
    rows, theirs = [], []
    for sentence in sentences:
        tokens = sentence.split()
        boundary = tokens.index("[SEP]")
        symbols = [_symbol(token) for token in tokens[:-1]] + ["</s>"]  # which ends our sentences
        rows.append([words.index(symbol) for symbol in symbols])
        ids = [TOKENS.index(token) for token in tokens]
        kinds = [0] * (boundary + 1) + [1] * (len(ids) - boundary - 1)
        places = [*range(boundary + 1), *range(len(ids) - boundary - 1)]
        with torch.no_grad():
            encoded = bert(
                torch.tensor([ids]), token_type_ids=torch.tensor([kinds]), position_ids=torch.tensor([places])
            )
        theirs.append(encoded.last_hidden_state[0])
    longest = max(map(len, rows))
    fill = [[words.pad()] * (longest - len(row)) for row in rows]
    tokens = torch.tensor([(pad + row) if left_pad else (row + pad) for row, pad in zip(rows, fill)])
    with torch.no_grad():
        output = model.encoder(tokens)["encoder_out"][0].transpose(0, 1)
    for row, source, expected in zip(output, tokens, theirs):
        torch.testing.assert_close(row[source.ne(words.pad())], expected, **CLOSE)


def _symbol(token: str) -> str:
    special = {"[SEP]": "▁[SEP]", "[MASK]": "<mask>", "[UNK]": "<unk>", "[CLS]": "<s>"}
    return special.get(token) or (token[2:] if token.startswith("##") else f"▁{token}")


@pytest.mark.parametrize("flags", ("", "--encoder-layerdrop 0.9 --decoder-layerdrop 0.9"))
def test_a_decoder_layer_equals_a_layer_of_transformers(bert, folder, flags):
    model = ours(folder, flags)
    x = torch.randn(5, 1, 16)
    for layer, theirs in zip(model.decoder.layers, bert.encoder.layer):
        with torch.no_grad():
            attended, _ = layer.self_attn(x, x, x)
            inner = layer.self_attn_layer_norm(x + attended)
            actual = layer.final_layer_norm(inner + layer.fc2(layer.activation_fn(layer.fc1(inner))))
            expected = theirs(x.transpose(0, 1))
        expected = expected[0] if isinstance(expected, tuple) else expected
        torch.testing.assert_close(actual.transpose(0, 1), expected.view(1, 5, 16), **CLOSE)
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            context, own = (getattr(attn, name).weight for attn in (layer.encoder_attn, layer.self_attn))
            assert torch.equal(context, own) and context is not own
        for kind in ("weight", "bias"):
            norm = getattr(layer.encoder_attn_layer_norm, kind)
            assert torch.equal(norm, getattr(layer.self_attn_layer_norm, kind))


def test_a_random_decoder_has_only_the_embeddings_of_the_bert(folder):
    model, unlike = ours(folder, "--decoder-init random"), build(own_task=task(our_dictionary())).float()
    own, other = dict(model.decoder.named_parameters()), dict(unlike.decoder.named_parameters())
    same = {name for name in own if "alpha" not in name and torch.equal(own[name], other[name])}
    loaded = {"embed_tokens.weight", "embed_positions.positions.weight", "embed_positions.segments.weight"}
    assert {name for name in own if "alpha" not in name} - same == loaded
    assert model.decoder.embed_tokens is model.encoder.embed_tokens
    for layer in model.encoder.layers:
        assert layer.self_attn_layer_norm.eps == 1e-3


def missing(folder: Path) -> None:
    as_pickle(folder, lambda name: name.replace("layer.1.output.dense.weight", "elsewhere"))


def without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize(
    ("damage", "words"), [(missing, r"layers\.1\.fc2\.weight"), (without_weights, r"model\.safetensors")]
)
def test_what_is_no_whole_bert_is_refused(folder, damage, words):
    damage(folder)
    with pytest.raises(UserError, match=f"{re.escape(str(folder))} .*{words}"):
        ours(folder)


def test_weights_run_no_code(folder, capsys):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"a": Runs(print, "run")}))
    with pytest.raises(pickle.UnpicklingError):
        ours(folder)
    assert "run" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "words"),
    [("--encoder-layers 3", "--encoder-layers is 3"), ("--activation-fn relu", "--activation-fn is relu")],
)
def test_settings_of_another_bert_are_refused(folder, flags, words):
    with pytest.raises(UserError, match=words):
        ours(folder, flags)


def test_a_dictionary_of_another_vocabulary_is_refused(folder):
    with pytest.raises(UserError, match=r"1 of the .* symbols"):
        ours(folder, own_task=task(dictionary([*SYMBOLS, "▁elsewhere"])))


def test_a_checkpoint_that_is_no_masked_language_model_is_refused(tmp_path):
    torch.save(checkpoint_state(), tmp_path / "other.pt")
    with pytest.raises(UserError, match="of a transformer"):
        start_bert(Namespace(bert=str(tmp_path / "other.pt")))
