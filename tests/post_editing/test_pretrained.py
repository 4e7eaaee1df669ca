"""Loading a BERT: against a random ``transformers.BertModel``, saved as Hugging Face lays it out."""

import json
import pickle
import shutil
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.models import ARCH_MODEL_REGISTRY
from helpers import parse
from post_editing import ARCH, SMALL, SYMBOLS, build, dictionary, task

from user_dir.corpora.bert_tokenizer import files_of, read_tokenizer
from user_dir.errors import UserError
from user_dir.post_editing.pretrained import read_bert

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{i}" for i in range(12)), "##ed", "##s"]
CLOSE = {"rtol": 0.0, "atol": 1e-5}


def our_dictionary():
    """The vocabulary in another order, padded as by prepare.py."""
    symbols = [*reversed(SYMBOLS), "s", "ed", "madeupword0000", "madeupword0001"]
    return dictionary(symbols)


@pytest.fixture(scope="module")
def bert(silent_transformers):
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


def ours(folder: Path, flags: str = "", given=None):
    flags = f"--attention-normalizer softmax --bert {folder} {flags}"
    return build(flags, given=given or task(our_dictionary())).float().eval()


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
            found = bert(
                torch.tensor([ids]), token_type_ids=torch.tensor([kinds]), position_ids=torch.tensor([places])
            )
        theirs.append(found.last_hidden_state[0])
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
            found = layer.final_layer_norm(inner + layer.fc2(layer.activation_fn(layer.fc1(inner))))
            expected = theirs(x.transpose(0, 1))
        expected = expected[0] if isinstance(expected, tuple) else expected
        torch.testing.assert_close(found.transpose(0, 1), expected.view(1, 5, 16), **CLOSE)
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            context, own = (getattr(each, name).weight for each in (layer.encoder_attn, layer.self_attn))
            assert torch.equal(context, own) and context is not own
        for kind in ("weight", "bias"):
            norm = getattr(layer.encoder_attn_layer_norm, kind)
            assert torch.equal(norm, getattr(layer.self_attn_layer_norm, kind))


def test_a_random_decoder_has_only_the_embeddings_of_the_bert(folder):
    model, unlike = ours(folder, "--decoder-init random"), build(given=task(our_dictionary())).float()
    own, other = dict(model.decoder.named_parameters()), dict(unlike.decoder.named_parameters())
    same = {name for name in own if "alpha" not in name and torch.equal(own[name], other[name])}
    loaded = {"embed_tokens.weight", "embed_positions.positions.weight", "embed_positions.segments.weight"}
    assert {name for name in own if "alpha" not in name} - same == loaded
    assert model.decoder.embed_tokens is model.encoder.embed_tokens
    for layer in model.encoder.layers:
        assert layer.self_attn_layer_norm.eps == 1e-3


def test_symbols_that_fill_the_dictionary_keep_their_random_embedding(folder):
    words = our_dictionary()
    place = words.index("madeupword0000")
    loaded, plain = ours(folder), build(given=task(words)).float()
    ours_, other = loaded.encoder.embed_tokens.weight, plain.encoder.embed_tokens.weight
    assert torch.equal(ours_[place], other[place])
    assert not torch.equal(ours_[words.index("ed")], other[words.index("ed")])


def change(folder: Path, **values) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **values}))


def without(folder: Path, name: str) -> None:
    as_pickle(folder, lambda each: each)
    weights = torch.load(folder / "pytorch_model.bin")
    del weights[name]
    torch.save(weights, folder / "pytorch_model.bin")


class Code:
    def __reduce__(self):
        return print, ("run",)


def hostile(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"a": Code()}))


def compressed(folder: Path) -> None:
    """A small ``pytorch_model.bin`` that would unpack to 64 MB."""
    (folder / "model.safetensors").unlink()
    torch.save({"a": "x" * 64_000_000}, folder / "large.bin")
    with (
        zipfile.ZipFile(folder / "large.bin") as large,
        zipfile.ZipFile(folder / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as small,
    ):
        for name in large.namelist():
            small.writestr(name, large.read(name))
    (folder / "large.bin").unlink()


def long_header(folder: Path) -> None:
    header = json.dumps({"__metadata__": {"a": "x" * (17 << 20)}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)


def as_shards(folder: Path) -> dict:
    """Replace the safetensors by two shards and an index; returns its map of weights."""
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    names = sorted(weights)
    places = {}
    for number, mine in enumerate((names[::2], names[1::2]), start=1):
        shard = f"model-0000{number}-of-00002.safetensors"
        save_file({name: weights[name] for name in mine}, folder / shard)
        places.update(dict.fromkeys(mine, shard))
    (folder / "model.safetensors").unlink()
    write_index(folder, places)
    return places


def write_index(folder: Path, places: dict) -> None:
    index = {"metadata": {"total_size": 1}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def with_place(folder: Path, place) -> None:
    places = as_shards(folder)
    write_index(folder, {**places, sorted(places)[3]: place})


def recast(folder: Path, cast) -> None:
    as_pickle(folder, lambda each: each)
    weights = torch.load(folder / "pytorch_model.bin")
    torch.save({name: cast(value) for name, value in weights.items()}, folder / "pytorch_model.bin")


def test_shards_and_half_precision_are_read(folder, tmp_path):
    whole = ours(folder).state_dict()
    as_shards(folder)
    assert all(torch.equal(value, whole[name]) for name, value in ours(folder).state_dict().items())
    for dtype in (torch.float16, torch.bfloat16):
        half = Path(shutil.copytree(folder, tmp_path / str(dtype)))
        from safetensors.torch import load_file, save_file

        for shard in half.glob("model-*.safetensors"):
            save_file({name: value.to(dtype) for name, value in load_file(shard).items()}, shard)
        found = ours(half).state_dict()
        name = "encoder.layers.0.fc1.weight"
        assert found[name].dtype == torch.float32 and torch.equal(found[name], whole[name].to(dtype).float())


def test_a_folder_without_model_type_is_that_of_a_bert(folder):
    whole = ours(folder).state_dict()
    config = json.loads((folder / "config.json").read_text())
    for more in ({}, {"architectures": ["BertForMaskedLM"]}):
        kept = {key: value for key, value in config.items() if key not in ("model_type", "architectures")}
        (folder / "config.json").write_text(json.dumps({**kept, **more}))
        assert all(torch.equal(value, whole[name]) for name, value in ours(folder).state_dict().items())


def lacking(folder: Path, key: str) -> None:
    config = json.loads((folder / "config.json").read_text())
    del config[key]
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "config.json").unlink(), "config.json"),
        (lambda f: (f / "config.json").write_text("{"), "config.json .* JSON"),
        (lambda f: (f / "vocab.txt").unlink(), "has neither vocab.txt nor tokenizer.json"),
        (lambda f: (f / "vocab.txt").write_text("\n".join(TOKENS[:-1])), "18 tokens, but .* 19 word"),
        (lambda f: (f / "vocab.txt").write_text("\n".join([*TOKENS, "late"])), "20 tokens, but .* 19 word"),
        (lambda f: tokenizer_config(f, tokenizer_class="RobertaTokenizer"), "tokenizer_class is 'Rob"),
        (lambda f: change(f, model_type="modernbert"), "model_type is 'modernbert'"),
        (lambda f: (f / "model.safetensors").unlink(), "has neither model.safetensors nor pytorch_model.bin"),
        (lambda f: (f / "model.safetensors").write_bytes(b"x" * 99), "model.safetensors cannot be read"),
        (hostile, "pytorch_model.bin cannot be read as weights"),
        (compressed, "pytorch_model.bin .*compressed"),
        (long_header, "model.safetensors has a header of 17,82"),
        (
            lambda f: without(f, "encoder.layer.1.output.dense.bias"),
            "lacks the weights for layers.1.fc2.bias",
        ),
        (lambda f: change(f, model_type="roberta"), "config.json.*model_type is 'roberta'"),
        (lambda f: change(f, hidden_size=32), "hidden_size is 32"),
        (lambda f: change(f, num_hidden_layers=3), "num_hidden_layers is 3"),
        (lambda f: change(f, num_attention_heads="4"), "num_attention_heads is '4'"),
        (lambda f: change(f, hidden_act="silu"), "hidden_act is 'silu'"),
        (lambda f: change(f, hidden_act="relu"), "--activation-fn is gelu, but that of the BERT .* is relu"),
        (lambda f: change(f, type_vocab_size=1), "type_vocab_size is 1"),
        (lambda f: change(f, position_embedding_type="relative_key"), "position_embedding_type is 'rela"),
        (lambda f: change(f, num_hidden_layers=1), "num_hidden_layers is 1"),
        (lambda f: change(f, intermediate_size=16), "intermediate_size is 16"),
        (lambda f: change(f, max_position_embeddings=40), "max_position_embeddings is 40"),
        (lambda f: change(f, vocab_size=40), "vocab_size is 40"),
        (lambda f: change(f, num_attention_heads=3), "num_attention_heads"),
        (lambda f: change(f, layer_norm_eps=float("nan")), "layer_norm_eps is nan"),
        (lambda f: change(f, layer_norm_eps=True), "layer_norm_eps is True"),
        (lambda f: change(f, hidden_act=["gelu"]), "hidden_act is "),
        (lambda f: change(f, model_type=None), "model_type is None"),
        (lambda f: (lacking(f, "model_type"), change(f, architectures=["RobertaModel"])), "RobertaModel"),
        (lambda f: lacking(f, "hidden_size"), "config.json.*hidden_size"),
        (lambda f: (f / "config.json").write_text("[]"), "config.json"),
        (lambda f: with_place(f, "../other.safetensors"), r"index.json.*\.\./other"),
        (lambda f: with_place(f, "/etc/passwd"), "index.json.*/etc/passwd"),
        (lambda f: with_place(f, "vocab.txt"), "index.json.*vocab.txt"),
        (lambda f: with_place(f, "model-3.safetensors"), "index.json.*model-3.safetensors"),
        (
            lambda f: with_place(f, "model-00001-of-00002.safetensors"),
            "model-00001-of-00002.safetensors lacks",
        ),
        (lambda f: with_place(f, 3), "index.json.*3"),
        (lambda f: recast(f, lambda value: value.int()), "int32"),
        (lambda f: recast(f, lambda value: value / 0), "NaN"),
        (lambda f: shutil.rmtree(f), "there is neither such a folder nor such a checkpoint"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused(folder, capsys, spoil, message):
    spoil(folder)
    with pytest.raises(UserError, match=message):
        ours(folder)
    assert "run" not in capsys.readouterr().out


def test_another_vocabulary_is_refused(folder):
    words = dictionary([*SYMBOLS, "▁unseen", "▁unheard"])
    with pytest.raises(
        UserError, match=r"2 of the 20 symbols of the dictionary are not in .* such as '▁unseen'"
    ):
        ours(folder, given=task(words))


def tokenizer_config(folder: Path, **values) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps(values))


def test_a_corpus_whose_text_is_treated_otherwise_is_refused(folder, tmp_path):
    """Each BERT says that it lower-cases or not; the corpus was prepared with and without these files."""
    for place in (data := tmp_path / "data" / "bin", tmp_path / "data" / "text"):
        place.mkdir(parents=True)
    (tmp_path / "data" / "corpus.yaml").touch()
    given = task(our_dictionary())
    given.cfg = SimpleNamespace(data=str(data))
    shutil.copy(folder / "vocab.txt", tmp_path / "data" / "text")
    ours(folder, given=given)  # nothing is known of this BERT
    tokenizer_config(folder, do_lower_case=True)
    with pytest.raises(UserError, match="do_lower_case"):
        ours(folder, given=given)
    found = read_tokenizer(files_of(folder))
    (tmp_path / "data" / "text" / "vocab.txt").unlink()
    (tmp_path / "data" / "text" / "tokenizer.json").write_text(found.written())
    ours(folder, given=given)
    tokenizer_config(folder, do_lower_case=True, strip_accents=False)
    with pytest.raises(UserError, match="strip_accents"):
        ours(folder, given=given)


def test_a_checkpoint_knows_how_its_text_was_treated(folder, tmp_path):
    """From the corpus of its training, beside whose pretraining text its tokenizer is."""
    for name in ("one", "other"):
        for place in ("bin", "pretraining", "text"):
            (tmp_path / name / place).mkdir(parents=True)
        (tmp_path / name / "corpus.yaml").touch()
        tokenizer_config(folder, do_lower_case=name == "one")
        written = read_tokenizer(files_of(folder)).written()
        (tmp_path / name / "text" / "tokenizer.json").write_text(written)
    words = our_dictionary()
    words.save(str(tmp_path / "one" / "pretraining" / "dict.txt"))
    arch = "adaptively_sparse_masked_lm"
    flags = "--layer-norm-eps 0.01 --max-source-positions 22 --attention-normalizer softmax"
    args = parse(f"{SMALL} {flags}", arch)
    state = {
        "cfg": {"model": args, "task": {"_name": "masked_lm", "data": str(tmp_path / "one" / "pretraining")}},
        "model": ARCH_MODEL_REGISTRY[arch].build_model(args, task(words)).state_dict(),
        "optimizer_history": [{"num_updates": 3}],
        "extra_state": {},
    }
    path = tmp_path / "checkpoint.pt"
    checkpoint_utils.torch_persistent_save(state, str(path))
    given = task(words)
    given.cfg = SimpleNamespace(data=str(tmp_path / "one" / "bin"))
    assert ours(path, given=given).encoder.layernorm_embedding.eps == 0.01
    assert ours(path, "--layer-norm-eps 0.1", given).encoder.layernorm_embedding.eps == 0.1
    given.cfg.data = str(tmp_path / "other" / "bin")
    with pytest.raises(UserError, match="do_lower_case"):
        ours(path, given=given)


def test_folders_of_transformers_5_are_read(bert, saved, tmp_path, silent_transformers):
    """Without ``vocab.txt``, in shards of half precision."""
    from transformers import BertModel, BertTokenizer

    folder = tmp_path / "new"
    half = BertModel(bert.config)
    half.load_state_dict(bert.state_dict())
    half.half().save_pretrained(folder, max_shard_size="4KB")
    BertTokenizer(vocab={token: row for row, token in enumerate(TOKENS)}).save_pretrained(folder)
    names = {path.name for path in folder.iterdir()}
    assert "vocab.txt" not in names and "model.safetensors" not in names
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float16"
    found, whole = ours(folder).state_dict(), ours(saved).state_dict()
    for name, value in whole.items():
        torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-3)
    next(folder.glob("model-*.safetensors")).unlink()
    with pytest.raises(UserError, match=r"index.json names .*model-.*but there is no"):
        ours(folder)


def test_punctuation_within_words_starts_as_the_mark_that_the_bert_knows(folder):
    tokens = [*TOKENS[:-2], ".", "##."]
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    found = ours(folder, given=task(dictionary([*SYMBOLS, "▁.", "."])))
    rows = found.encoder.embed_tokens.weight
    assert torch.equal(rows[-1], rows[-2]) and not torch.equal(rows[-1], rows[-3])


def test_the_number_of_positions_is_at_most_that_of_the_bert(folder):
    flags = f"{SMALL} --bert {folder} --max-source-positions 99 --max-target-positions 9"
    args = parse(flags, ARCH)
    read_bert(str(folder)).fit(args)
    assert (args.max_source_positions, args.max_target_positions) == (22, 9)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux")
@pytest.mark.parametrize("pickled", [False, True])
def test_a_file_that_changes_later_changes_nothing(folder, pickled):
    if pickled:
        as_pickle(folder, lambda name: name)
    weights = next(path for path in folder.iterdir() if path.suffix in (".bin", ".safetensors"))
    before = read_bert(str(folder)).weights
    kept = {name: value.clone() for name, value in before.items()}
    assert str(weights) not in Path("/proc/self/maps").read_text()
    weights.write_bytes(bytes(weights.stat().st_size))
    weights.write_bytes(b"")
    torch.testing.assert_close(before, kept, rtol=0, atol=0)
