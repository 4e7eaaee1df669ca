"""Broken files, and files that say something else: read, or refused in one sentence."""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch
import yaml
from fairseq import checkpoint_utils
from fairseq.models import ARCH_MODEL_REGISTRY
from helpers import SMALL, binarised_toy, dictionary, parse, translation_task, whole_config
from hypothesis import strategies as st
from mutations import JUNK, TENSORS, broken, changed
from search import budgets, search, sentence
from tiny_release import listed, write_tar

from user_dir.analysis.alignment import Gold
from user_dir.analysis.capture import load_model
from user_dir.analysis.head_tables import head_table
from user_dir.analysis.maps import Maps, SentenceMaps
from user_dir.analysis.maps_writer import maps_writer
from user_dir.analysis.report.page import report_page
from user_dir.analysis.result_files import ModelAnalysis, check_same_model
from user_dir.analysis.roles import role_table
from user_dir.analysis.statistics_file import read_statistics
from user_dir.analysis.trajectories import alpha_table, read_alpha_log, to_csv, to_json
from user_dir.analysis.words import read_interrogatives
from user_dir.checkpoints import average_checkpoints, load_checkpoint
from user_dir.config import check_config, hydra_override
from user_dir.corpora import Corpus, load_corpus
from user_dir.corpora.readers import read_lines
from user_dir.models.from_settings import checkpoint_alphas, from_stock
from user_dir.releases.archive import place_of, unpack, write_archive

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


def written(path: Path, content: bytes | str) -> Path:
    path.write_bytes(encoded(content) if isinstance(content, str) else content)
    return path


# ------------------------------------------------------------------------------------------- checkpoints


def checkpoint(arch: str) -> dict:
    """What fairseq-train writes of a small model."""
    args = parse(f"{SMALL} --task translation --source-lang de --target-lang en", arch)
    args._name = args.arch
    task = {"_name": "translation", "data": "bin", "source_lang": "de", "target_lang": "en"}
    task |= {"left_pad_source": True, "left_pad_target": False, "max_source_positions": 1024}
    task |= {"max_target_positions": 1024, "num_batch_buckets": 0, "eval_bleu": False}
    history = {"criterion_name": "CrossEntropyCriterion", "optimizer_name": "FairseqAdam"}
    history |= {"lr_scheduler_state": {"best": None}, "num_updates": 3}
    return {
        "args": None,
        "cfg": {"model": args, "task": task, "common": {"seed": 1}, "bpe": None},
        "model": ARCH_MODEL_REGISTRY[arch].build_model(args, translation_task()).state_dict(),
        "optimizer_history": [history],
        "extra_state": {"train_iterator": {"epoch": 1}, "best": np.float64(1.5)},
        "last_optimizer_state": None,
    }


OURS, STOCK = checkpoint("adaptively_sparse_transformer"), checkpoint("transformer")


@pytest.fixture(scope="module")
def corpus(folder):
    """A corpus of which there is what a model needs: the dictionaries."""
    corpus = Corpus("toy", folder, load_corpus("toy").description)
    corpus.bin.mkdir()
    for language in corpus.languages:
        dictionary().save(str(corpus.bin / f"dict.{language}.txt"))
    return corpus


def use_checkpoint(path: Path, corpus: Corpus) -> None:
    """Everything that we and fairseq do with a checkpoint, up to running the model."""
    stock = sentence(lambda: from_stock(load_checkpoint(path), 1.0))
    ours = sentence(lambda: checkpoint_alphas(load_checkpoint(path)))
    assert stock or ours, "it cannot be of both models"
    sentence(average_checkpoints, [path, path])
    sentence(load_model, path, corpus, cpu=True)
    sentence(checkpoint_utils.load_checkpoint_to_cpu, str(path))


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("whole", [OURS, STOCK], ids=["ours", "stock"])
def test_whole_checkpoints_are_read(folder, corpus, whole, zipped):
    path = folder / "whole.pt"
    torch.save(whole, path, _use_new_zipfile_serialization=zipped)
    state = load_checkpoint(path)
    assert state["extra_state"]["best"] == 1.5
    load_model(path, corpus, cpu=True)
    average_checkpoints([path, path])
    checkpoint_utils.load_checkpoint_to_cpu(str(path))
    if whole is OURS:
        checkpoint_alphas(state)
    else:
        from_stock(state, 1.0)


@search(60)
@hypothesis.given(st.data(), st.booleans(), st.booleans())
def test_broken_checkpoints(folder, corpus, data, zipped, ours):
    whole = io.BytesIO()
    torch.save(OURS if ours else STOCK, whole, _use_new_zipfile_serialization=zipped)
    use_checkpoint(written(folder / "broken.pt", data.draw(broken(whole.getvalue()))), corpus)


@budgets(15, 100)
def test_changed_checkpoints(folder, corpus, examples):
    @search(examples)
    @hypothesis.given(st.data(), st.booleans())
    def check(data, ours):
        state = data.draw(changed(OURS if ours else STOCK, st.one_of(JUNK, TENSORS), most=3))
        torch.save(state, folder / "changed.pt")
        use_checkpoint(folder / "changed.pt", corpus)

    check()


# ------------------------------------------------------------------------------------- release archives

RELEASED = {"README.md": b"# card\n", "model.pt": bytes(range(256)) * 4, "dict.de.txt": b"a 1\n" * 200}


def archive() -> bytes:
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "whole.tar"
        write_archive("toy", RELEASED, path)
        return path.read_bytes()


def use_archive(path: Path) -> None:
    """What is unpacked at all is what was released."""
    with tempfile.TemporaryDirectory() as temporary:
        manifest = unpack(path, Path(temporary))
        for name, content in RELEASED.items():
            assert (Path(temporary) / place_of(name)).read_bytes() == content
        assert manifest.files.keys() == RELEASED.keys()


@search(150)
@hypothesis.given(broken(archive()))
def test_broken_release_archives(folder, content):
    sentence(use_archive, written(folder / "broken.tar", content))


@search(150)
@hypothesis.given(changed(json.loads(listed(RELEASED)["manifest.json"]), most=2))
def test_changed_manifests(folder, manifest):
    files = {"manifest.json": json.dumps(manifest).encode(), **RELEASED}
    sentence(use_archive, write_tar(folder / "changed.tar", files))


def test_a_whole_release_archive_is_read(folder):
    use_archive(written(folder / "whole.tar", archive()))


# -------------------------------------------------------------------------- α logs, statistics and maps

HEADS = {"encoder_self": (2, 2), "decoder_self": (2, 2), "decoder_context": (2, 2)}
LOG = [
    {"update": update, **{name: [[1.25 + update / 100, 1.5]] * 2 for name in HEADS}} for update in (0, 10, 20)
]


def use_log(path: Path) -> None:
    trajectories = read_alpha_log(path)
    alpha_table(trajectories), to_csv(trajectories)
    json.loads(to_json(trajectories, "log"))
    report_page([ModelAnalysis("model", STATISTICS, trajectories)])
    assert all(np.isfinite(values).all() for values in trajectories.alphas.values())


def lines_of(log: list) -> str:
    return "".join(json.dumps(line) + "\n" for line in log)


@search(150)
@hypothesis.given(st.one_of(changed(LOG).map(lines_of), broken(lines_of(LOG).encode())))
def test_alpha_logs(folder, content):
    sentence(use_log, written(folder / "alpha.jsonl", content))


def statistics() -> dict:
    """What head_stats.py writes, of few columns."""
    places = [
        {"attention": name, "layer": layer} for name, (layers, _) in HEADS.items() for layer in range(layers)
    ]
    heads = [
        {**place, "head": head, "alpha": 1.5, "density": 0.4, "density_std": 0.1, "density_histogram": [1, 3]}
        | {"entropy": None, "eos": 0.25, "confidence_previous": 0.95, "roles": ["previous position"]}
        for place in places
        for head in range(2)
    ]
    role = {
        "measure": "confidence_previous",
        "threshold": 0.9,
        "heads": [{**places[0], "head": 0, "value": 0.95}],
    }
    layers = [
        {**place, "diversity": 0.3, "union_density": 0.5, "sorted_densities": [0.4, 0.4]} for place in places
    ]
    about = {
        "checkpoint": "a.pt",
        "corpus": "toy",
        "subset": "valid",
        "sentences": 4,
        "measures": {"eos": "weight"},
    }
    return {**about, "heads": heads, "layers": layers, "roles": {"previous position": role}}


STATISTICS = statistics()


def use_statistics(path: Path) -> None:
    found = read_statistics(path)
    head_table(found["heads"]), role_table(found["roles"])
    model = ModelAnalysis("model", found)
    check_same_model(model)
    report_page([model])


@search(150)
@hypothesis.given(st.one_of(changed(STATISTICS).map(json.dumps), broken(json.dumps(STATISTICS).encode())))
def test_statistics(folder, content):
    sentence(use_statistics, written(folder / "a.heads.json", content))


def sentence_maps(length: int) -> SentenceMaps:
    tokens = [f"▁w{i}" for i in range(length)]
    weights = {
        name: np.full((*shape, length, length), 1 / length, np.float32) for name, shape in HEADS.items()
    }
    return SentenceMaps(weights, tokens, ["</s>", *tokens[1:]], tokens, "text")


def use_maps(path: Path) -> None:
    maps = Maps(path)
    for each in maps:
        for name in each.weights:
            each.head(name, 0, 0)
    model = ModelAnalysis("model", STATISTICS, maps=maps)
    check_same_model(model)
    report_page([model])


def whole_maps(path: Path) -> Path:
    with maps_writer(path) as writer:
        for length in (2, 3):
            writer.write(sentence_maps(length))
    return path


@search(100)
@hypothesis.given(st.data())
def test_attention_maps(folder, data):
    path = whole_maps(folder / "a.attention.npz")
    if data.draw(st.booleans()):
        sentence(use_maps, written(path, data.draw(broken(path.read_bytes()))))
        return
    arrays = dict(np.load(path))
    arrays.update(
        data.draw(
            st.dictionaries(
                st.sampled_from(sorted(arrays)),
                st.sampled_from(
                    (np.zeros(0), np.ones((2, 2, 2, 2)), np.full((2, 2, 3, 3), np.nan), np.array("x"))
                )
                | st.sampled_from(
                    (np.array(["a", "b"]), np.array([1, 2]), np.array([None]), np.ones((2, 2), "U2"))
                ),
                min_size=1,
            )
        )
    )
    np.savez(path, **arrays)
    sentence(use_maps, path)


# ------------------------------------------------------------------------------------ configs and corpora

TOY = ROOT / "configs" / "toy"
CONFIG = whole_config(TOY / "alpha_entmax.yaml")
PARTS = [
    yaml.safe_load((TOY / name).read_text(encoding="utf-8")) for name in ("alpha_entmax.yaml", "base.yaml")
]


def as_yaml(value) -> str:
    return yaml.safe_dump(value, allow_unicode=True)


def yaml_files(whole):
    return st.one_of(
        changed(whole).map(as_yaml), changed(whole).map(as_yaml), broken(as_yaml(whole).encode())
    )


@pytest.fixture(scope="module")
def root(folder):
    """A folder with data for the config."""
    return binarised_toy(folder)


@budgets(12, 60)
def test_configs(root, examples):
    @search(examples)
    @hypothesis.given(yaml_files(CONFIG), st.lists(st.text("model.=+~ax[]{}$'1,", max_size=8), max_size=1))
    def check(content, overrides):
        path = written(root / "a.yaml", content)
        sentence(lambda: check_config(path, [hydra_override(each) for each in overrides], root))

    check()


def test_a_whole_config_is_taken(root):
    path = written(root / "whole.yaml", as_yaml(CONFIG))
    assert sentence(lambda: check_config(path, [hydra_override("model.dropout=0.2")], root)) is None


@budgets(15, 60)
def test_configs_that_share(folder, examples):
    @search(examples)
    @hypothesis.given(yaml_files(PARTS[0]), yaml_files(PARTS[1]))
    def check(content, shared):
        path = written(folder / "a.yaml", content)
        written(folder / "base.yaml", shared)
        sentence(lambda: check_config(path, [], folder))

    check()


# ---------------------------------------------------------------------------------------------- text

ODD = "\u0085\u2028\u2029\u200b\u202e\ufeff\ufffe\x00\x0b\x0c\x1b\r\n\t &<>\ud800é한ア😀▁@-?"
LINES = {
    "lines": "Ein Satz.\nNoch einer.\n",
    "ted_tags": "<url>http://a</url>\n<title>Titel</title>\nEin Satz.\n",
    "segments": '<doc>\n<seg id="1">Ein Satz &amp; mehr</seg>\n<seg id="2">Zwei\nZeilen</seg>\n</doc>\n',
    "tmx": '<tmx><body><tu><tuv xml:lang="de"><seg>Ein <b>Satz</b></seg></tuv><tuv xml:lang="en"><seg>A'
    "</seg></tuv></tu></body></tmx>\n",
    "columns": "Ein Satz.\tA sentence.\nNoch einer.\tAnother one.\n",
}


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


TEXTS = st.one_of(
    st.text(st.characters() | st.sampled_from(ODD), max_size=30).map(
        lambda text: text.encode("utf-8", "surrogatepass")
    ),
    st.sampled_from(sorted(LINES)).flatmap(lambda form: broken(LINES[form].encode())),
    st.binary(max_size=30),
)


GOLD, INTERROGATIVES = b"0-0 1?1 2p2\n\n3-3\n", b"wer # Frage\nwas\n"


def test_whole_gold_links_and_word_lists_are_read(folder):
    gold = Gold(written(folder / "gold.txt", GOLD))
    assert sentence(lambda: [gold.sentence(i, 4, 4) for i in range(3)]) is None
    words = written(folder / "words.txt", INTERROGATIVES)
    assert sorted(read_interrogatives(words)) == ["was", "wer"]
    assert len(list(read_lines(words))) == 2


@search(100)
@hypothesis.given(st.one_of(TEXTS, broken(GOLD), broken(INTERROGATIVES)))
def test_gold_links_and_word_lists(folder, content):
    path = written(folder / "words.txt", content)
    sentence(lambda: [Gold(path).sentence(0, 3, 3)])
    sentence(read_interrogatives, path)
    sentence(lambda: list(read_lines(path)))


# ------------------------------------------------------------------ what a search by chance would not find

DEEP = 100_000


@pytest.mark.parametrize(
    "use, write",
    [
        (use_log, lambda path: written(path, lines_of(LOG))),
        (use_statistics, lambda path: written(path, json.dumps(STATISTICS))),
        (use_maps, whole_maps),
    ],
)
def test_whole_files_are_read(folder, use, write):
    assert sentence(use, write(folder / "whole.npz")) is None


@pytest.mark.parametrize(
    "use, content",
    [
        (use_log, "[" * DEEP),
        (use_log, '{"update": ' + "9" * 5000 + "}\n"),
        (use_log, '{"update": 1, "encoder_self": [[' + "9" * 400 + "]]}\n"),
        (use_statistics, '{"heads": ' + "[" * DEEP),
    ],
)
def test_deep_or_strange(folder, use, content):
    assert sentence(use, written(folder / "deep", content))
