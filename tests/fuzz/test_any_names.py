"""Names that lead elsewhere, wherever a name can stand: refused; nothing outside is made, changed or read.

What is opened is watched by an audit hook of Python's; each test has its positive control.
"""

from __future__ import annotations

import copy
import io
import json
import os
import re
import shutil
import stat
import sys
import tarfile
import zipfile
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import hypothesis
import numpy as np
import pytest
import yaml
from hypothesis import strategies as st
from search import budgets, search, sentence

from user_dir.corpora import load_corpus, stamps
from user_dir.corpora import preparation as preparing
from user_dir.corpora.archives import extract, split_name
from user_dir.corpora.preparation import prepare
from user_dir.corpora.split_sources import file_names
from user_dir.errors import UserError
from user_dir.experiments.plan import read_plan
from user_dir.experiments.records import _translations
from user_dir.io import leads_out, name_fault, within
from user_dir.translation import evaluation
from user_dir.translation.compared_systems import read_systems

OUTSIDE = "outside"
TARGETS = ("secret", "new", "folder/new", "x.tgz", "secret.de")
_watched: list[list] = []  # what was opened, made, moved or removed


def _hook(event: str, arguments: tuple) -> None:
    if _watched and event in ("open", "os.mkdir", "os.rename", "os.remove", "os.symlink", "os.link"):
        _watched[-1].extend(each for each in arguments[:2] if isinstance(each, (str, bytes, os.PathLike)))


sys.addaudithook(_hook)


@contextmanager
def untouched(outside: Path):
    """Fail where the body changes, or opens, anything in that folder."""
    before, opened = contents(outside), []
    _watched.append(opened)
    try:
        yield
    finally:
        _watched.pop()
    found = [
        path for path in map(os.fsdecode, opened) if Path(os.path.realpath(path)).is_relative_to(outside)
    ]
    assert not found
    assert contents(outside) == before


def contents(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """``data/toys``, a corpus's folder, and beside ``data`` what is none of its business."""
    root = tmp_path_factory.mktemp("names").resolve()
    outside = root / OUTSIDE
    (outside / "folder").mkdir(parents=True)
    for name in ("secret", "secret.de", "secret.en", "folder/secret"):
        (outside / name).write_text("a secret\nof two lines\n")
    with tarfile.open(outside / "x.tgz", "w:gz") as archive:
        archive.add(outside / "secret", "secret")
    (root / "data" / "toys").mkdir(parents=True)
    return root


def test_the_watch_sees_what_it_is_to_see(place):
    outside = place / OUTSIDE
    for action in (
        lambda: (outside / "secret").read_text(),
        lambda: open(place / "data" / ".." / OUTSIDE / "secret").close(),
        lambda: (outside / "new").write_text("x"),
        lambda: (outside / "made").mkdir(),
    ):
        with pytest.raises(AssertionError), untouched(outside):
            action()
    (outside / "new").unlink()
    (outside / "made").rmdir()


# ------------------------------------------------------------------------------------------------ names

PLAIN = st.text("abcXYZ019._ %+,é日-", min_size=1, max_size=40).filter(
    lambda name: name[0] not in "-" and name not in (".", "..") and not name.endswith(".part")
)
PATHS = st.lists(PLAIN.filter(lambda name: not name.startswith("stamp")), min_size=1, max_size=2).map(
    "/".join
)


@st.composite
def hostile(draw, place: Path):
    """A name that leads elsewhere, or that no file should have."""
    target = draw(st.sampled_from(TARGETS))
    ups = "../" * draw(st.integers(1, 6))
    return draw(
        st.sampled_from(
            (
                f"{ups}{OUTSIDE}/{target}",
                f"a/{ups}{OUTSIDE}/{target}",
                f"./{ups}{OUTSIDE}/{target}",
                f"{place}/{OUTSIDE}/{target}",
                f"//{place}/{OUTSIDE}/{target}",
                *("..", ".", "", "/", "a//b", "a/", "a/.", "a/..", "..\\new", "C:new", "\\\\host\\new"),
                *("-x", "a/-x", "--raw", "a\nb", "a\0b", "a\x1b[2Jb", "a\u202eb", "\ud800", "\u2028", "\x7f"),
                *("x" * 101, "日" * 101, "a/" * 60 + "a", "x" * 40_000),
            )
        )
    )


@search(150)
@hypothesis.given(st.data())
def test_which_names_are_plain(place, data):
    folder = place / "data"
    assert name_fault(data.draw(PLAIN)) is None
    assert name_fault(data.draw(PATHS), folders=True) is None
    name = data.draw(hostile(place))
    assert name_fault(name, folders=True) is not None
    assert name_fault(data.draw(st.sampled_from((None, 1, True, ["a"], {"a": 1}, b"a")))) == "is not a string"
    other = data.draw(st.text(max_size=20))
    if name_fault(other, folders=True) is None:
        assert leads_out(folder, folder / other) is None
        assert other.isprintable() and "\\" not in other
    if name_fault(other) is None:
        assert (folder / other).parent == folder


# ----------------------------------------------------------------------------------- corpus descriptions

GERMAN = ["Der Hund schläft.", "Die Katze sieht den Hund.", "Wo ist das Haus?", "Heute singt das Kind."]
ENGLISH = ["The dog sleeps.", "The cat sees the dog.", "Where is the house?", "Today the child sings."]
URL = "http://127.0.0.1:9/"  # where nobody answers
CORPUS = {
    "title": "a corpus",
    "languages": ["de", "en"],
    "splits": {
        "train": ["train.{language}", {"de": "a.de", "en": "a.en"}],
        "valid": {"file": "valid.{language}", "format": "lines"},
        "exam": {"file": "exam.tgz/inner/exam.{language}", "reference": "exam.ref.{language}"},
    },
    "vocabulary_size": 60,
    "sacrebleu": {"exam": "wmt14/full"},
    "downloads": {"exam.tgz": {"url": URL}},
}


def both(name: str) -> dict[str, str]:
    """Two files, so that what is refused is the name and not that the two are one."""
    return {"de": name, "en": f"{name}.en" if len(name) < 90 else "x"}


def in_downloads(values, name):
    values["downloads"][name] = {"url": URL}


def in_split(split, make):
    def put(values, name):
        values["splits"][split] = make(name)

    return put


def as_test_set(values, name):
    values["splits"][name] = values["splits"].pop("exam")
    values["sacrebleu"] = {}


def in_sacrebleu(values, name):
    values["sacrebleu"] = {"exam": name}


def as_language(values, name):
    values["languages"][0] = name
    for source in values["splits"]["train"][1:]:
        source[name] = source.pop("de")


# Where a name can stand → how it is put there, and whether it may have folders.
PLACES = {
    "download": (in_downloads, True),
    "split": (as_test_set, False),
    "language": (as_language, False),
    "sacrebleu": (in_sacrebleu, True),
    "files": (in_split("train", both), True),
    "a list of files": (in_split("train", lambda name: ["train.{language}", both(name)]), True),
    "pattern": (in_split("valid", lambda name: f"{name}/{{language}}"), True),
    "file": (in_split("valid", lambda name: {"file": both(name), "format": "lines"}), True),
    "reference": (in_split("exam", lambda name: {"file": "exam.{language}", "reference": both(name)}), True),
    "archive": (in_split("exam", lambda name: both(f"{name}/x.tgz/a")), True),
    "member": (in_split("exam", lambda name: both(f"exam.tgz/{name}")), True),
    "tmx": (in_split("train", lambda name: {"file": f"{name}/a.tmx"}), True),
}


def write_corpus(place: Path, values: dict) -> Path:
    folder = place / "data" / "toys"
    shutil.rmtree(folder)
    raw = folder / "raw"
    raw.mkdir(parents=True)
    for name, lines in (("train", GERMAN * 9), ("a", GERMAN), ("valid", GERMAN), ("exam.ref", GERMAN)):
        (raw / f"{name}.de").write_text("".join(f"{line}\n" for line in lines))
    for name, lines in (("train", ENGLISH * 9), ("a", ENGLISH), ("valid", ENGLISH), ("exam.ref", ENGLISH)):
        (raw / f"{name}.en").write_text("".join(f"{line}\n" for line in lines))
    exam(raw / "exam.tgz", "inner/exam.de", "inner/exam.en")
    (folder / "corpus.yaml").write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    return folder


def exam(path: Path, *members: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            entry = tarfile.TarInfo(member)
            content = "".join(f"{line}\n" for line in GERMAN).encode()
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def use_corpus(place: Path) -> None:
    corpus = load_corpus("toys", place / "data")
    prepare(corpus, workers=1)


@pytest.fixture(autouse=True)
def _no_fairseq(monkeypatch):
    def pretend(parts, subsets, folder, dictionary, target, workers):
        source, target_language = parts
        (target / f"train.{source}-{target_language}.{source}.bin").write_bytes(b"")
        return {}

    monkeypatch.setattr(preparing, "preprocess", pretend)


@pytest.mark.parametrize("where", PLACES)
@budgets(15, 40)
def test_no_name_in_a_description_leads_elsewhere(place, where, examples):
    @search(examples)
    @hypothesis.given(st.data())
    def check(data):
        put, _ = PLACES[where]
        values = copy.deepcopy(CORPUS)
        put(values, data.draw(hostile(place)))
        folder = write_corpus(place, values)
        before = contents(folder)
        with untouched(place / OUTSIDE):
            message = sentence(use_corpus, place)
        assert message is not None and re.search(r"corpus\.yaml(, line | has more than )", message)
        assert contents(folder) == before, "it began before it had looked at all names"

    check()


@pytest.mark.parametrize("where", PLACES)
@search(5)
@hypothesis.given(st.data())
def test_plain_names_are_taken(place, where, data):
    put, folders = PLACES[where]
    values = copy.deepcopy(CORPUS)
    if where == "language":
        name = data.draw(st.sampled_from(("sl", "zh_Hant", "x" * 50)))
    else:
        name = data.draw(PATHS if folders else PLAIN)
        hypothesis.assume(name not in ("train", "valid", "exam") and not name.startswith("test"))
        hypothesis.assume(not any(each in name for each in (".tgz", ".gz", ".zip")))
    put(values, name)
    folder = write_corpus(place, values)
    everything = {path for path in place.rglob("*") if not path.is_relative_to(folder)}
    corpus = load_corpus("toys", place / "data")
    provide(corpus, folder / "raw")
    prepare(corpus, workers=1)
    assert corpus.require_prepared().text("train", corpus.languages[0]).is_file()
    assert {path for path in place.rglob("*") if not path.is_relative_to(folder)} == everything
    if where == "split":
        assert corpus.test_sets == {name: "test"}


def provide(corpus, raw: Path) -> None:
    """Put every file that the description names into ``raw``."""
    members: dict[str, list[str]] = {}
    for name in file_names(corpus.description):
        archive, member = split_name(name)
        path = raw / archive
        path.parent.mkdir(parents=True, exist_ok=True)
        if member is not None:
            members.setdefault(archive, []).append(member)
        elif name.endswith(".tmx"):
            units = [
                f'<tu><tuv xml:lang="de"><seg>{de}</seg></tuv><tuv xml:lang="en"><seg>{en}</seg></tuv></tu>'
                for de, en in zip(GERMAN, ENGLISH)
            ]
            path.write_text(f"<tmx><body>{''.join(units * 9)}</body></tmx>")
        elif not path.exists():
            path.write_text("".join(f"{line}\n" for line in GERMAN * (9 if name.startswith("train.") else 1)))
    for archive, names in members.items():
        exam(raw / archive, *names)


@search(60)
@hypothesis.given(st.data())
def test_a_corpus_is_a_folder_of_the_data_folder(place, data):
    (place / OUTSIDE / "corpus.yaml").write_text(yaml.safe_dump(CORPUS))
    name = data.draw(st.one_of(hostile(place), st.sampled_from((f"../{OUTSIDE}", f"{place}/{OUTSIDE}"))))
    with untouched(place / OUTSIDE):
        message = sentence(load_corpus, name, place / "data")
    (place / OUTSIDE / "corpus.yaml").unlink()
    assert message is not None and message.startswith("there is no corpus")


# ------------------------------------------------------------------------------------------------- links


def link(path: Path, place: Path, target: str = "folder") -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(place / OUTSIDE / target)


@pytest.mark.parametrize(
    "name", ["text", "text/spm", "bin", "extracted", "extracted/exam.tgz", "extracted/exam.tgz/inner"]
)
@pytest.mark.parametrize("prepared", [False, True])
def test_no_link_in_a_corpuss_folder_is_written_through(place, name, prepared):
    folder = write_corpus(place, CORPUS)
    if prepared:  # so that there are stamps of before
        use_corpus(place)
    link(folder / name, place)
    with untouched(place / OUTSIDE):
        message = sentence(lambda: prepare(load_corpus("toys", place / "data"), workers=1, force=True))
    assert message is not None and f"{folder / name}" in message and "leads out of" in message


@pytest.mark.parametrize("name", ["raw", "raw/sub", "raw/sub/new.tgz.part"])
@pytest.mark.parametrize("target", ["folder", "secret", "new"])
def test_no_download_follows_a_link(place, name, target):
    values = copy.deepcopy(CORPUS)
    values["splits"] = {split: f"sub/new.tgz/{split}.{{language}}" for split in values["splits"]}
    values["downloads"] = {"sub/new.tgz": {"url": URL, "md5": "0" * 32}}
    folder = write_corpus(place, values)
    link(folder / name, place, target)
    with untouched(place / OUTSIDE):
        message = sentence(use_corpus, place)
    assert message is not None and "leads out of" in message


def test_a_link_to_a_raw_file_is_read_but_told_of(place, caplog):
    """Who has the files elsewhere may link them; what is read is then no secret."""
    folder = write_corpus(place, CORPUS)
    real = place / "elsewhere.de"
    (folder / "raw" / "train.de").rename(real)
    (folder / "raw" / "train.de").symlink_to(real)
    use_corpus(place)
    assert f"raw/train.de is a link; reading {real}" in caplog.text
    assert len([record for record in caplog.records if "is a link" in record.message]) == 1
    real.unlink()


@pytest.mark.parametrize("name", ["train.de", "exam.tgz", "exam.ref.en"])
@pytest.mark.parametrize("raw", [False, True])
def test_no_pipe_among_raw_files_is_waited_for(place, name, raw):
    folder = write_corpus(place, CORPUS)
    (folder / "raw" / name).unlink()
    os.mkfifo(folder / "raw" / name)
    corpus = load_corpus("toys", place / "data")
    given = folder / "raw"
    if raw:  # as --raw has it
        given = place / "given"
        (folder / "raw").rename(given)
    message = sentence(lambda: prepare(corpus, given if raw else None, workers=1))
    shutil.rmtree(given)
    # An archive that is no file is downloaded anew, if the description says from where.
    assert message is not None and (name.split(".")[0] in message or URL in message)


@search(100)
@hypothesis.given(st.data())
def test_a_stamp_cannot_have_other_files_removed(place, data):
    folder = write_corpus(place, CORPUS)
    stamp = folder / "stage" / "stamp.json"
    stamp.parent.mkdir()
    for name in ("old", "kept"):
        (stamp.parent / name).write_text("x")
    name = data.draw(hostile(place))
    hypothesis.assume(name_fault(name, folders=True, longest=255))
    outputs = {name: 22, "old": 1} if data.draw(st.booleans()) else {"old": 1}
    stamp.write_text(json.dumps({"inputs": {}, "outputs": outputs, "report": {}}))
    with untouched(place / OUTSIDE):
        stamps.is_whole(stamp, {})
        with stamps.building(stamp, {"new": 1}, folder) as build:
            (build.folder / "new").write_text("x")
    assert {path.name for path in stamp.parent.iterdir()} - {"old"} == {"kept", "new", "stamp.json"}
    assert (stamp.parent / "old").exists() == (name in outputs)  # of a sound stamp, the last build's is gone


# ---------------------------------------------------------------------------------------------- archives

KINDS = {
    "file": tarfile.REGTYPE,
    "symbolic link": tarfile.SYMTYPE,
    "hard link": tarfile.LNKTYPE,
    "folder": tarfile.DIRTYPE,
    "pipe": tarfile.FIFOTYPE,
    "device": tarfile.CHRTYPE,
}
GOOD = {"inner/a.de": b"one\n", "inner/a.en": b"two\n"}


def make_archive(path: Path, entries: list[tuple[str, str, str]], zipped: bool) -> None:
    """Entries are name, kind and where a link leads; ``GOOD`` follows them."""
    if zipped:
        with zipfile.ZipFile(path, "w") as archive:
            for name, kind, target in entries:
                entry = zipfile.ZipInfo(name)
                mode = {"file": stat.S_IFREG, "folder": stat.S_IFDIR, "pipe": stat.S_IFIFO}
                entry.external_attr = (mode.get(kind, stat.S_IFLNK) | 0o644) << 16
                archive.writestr(entry, target)
            for name, content in GOOD.items():
                archive.writestr(name, content)
        return
    with tarfile.open(path, "w:gz") as archive:
        for name, kind, target in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = KINDS[kind], target
            archive.addfile(entry)
        for name, content in GOOD.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


@search(150)
@hypothesis.given(st.data())
def test_no_member_of_an_archive_leads_elsewhere(place, data):
    """Links before a member of the same folder's name, and in its place; names that lead elsewhere."""
    zipped = data.draw(st.booleans())
    # As far as an archive can be written with them.
    odd = hostile(place).filter(lambda name: 0 < len(name) < 1000 and not {"\0", "\ud800"} & set(name))
    names = st.one_of(st.sampled_from(("inner", "inner/a.de", "inner/b", "other")), odd)
    kinds = st.sampled_from(sorted(KINDS))
    targets = st.one_of(st.sampled_from((f"{place}/{OUTSIDE}/secret", f"{place}/{OUTSIDE}", "..")), odd)
    entry = st.tuples(names, kinds, targets).filter(lambda entry: entry[1] != "file" or entry[0] not in GOOD)
    entries = data.draw(st.lists(entry, max_size=3))
    wanted = [*GOOD, *data.draw(st.lists(names, max_size=1))]
    archive, out = place / "data" / "x.tgz", place / "data" / "out"
    make_archive(archive, entries, zipped)
    with untouched(place / OUTSIDE):
        message = sentence(extract, archive, wanted, out)
    found = contents(out) if out.exists() else {}
    shutil.rmtree(out, ignore_errors=True)
    assert not any(content and content.startswith(b"a secret") for content in found.values())
    if not entries and wanted == [*GOOD]:
        assert message is None
    if message is None:  # what came out is what was asked for, each file with its own content
        files = [(name, target.encode()) for name, kind, target in entries if kind == "file" and zipped]
        came = {name: content for name, content in found.items() if content}
        assert {name: came.pop(name) for name in GOOD} == GOOD
        assert all(each in files and each[0] in wanted for each in came.items())


@pytest.mark.parametrize("zipped", [False, True])
def test_a_sound_archive_is_taken(place, zipped):
    archive, out = place / "data" / "x.tgz", place / "data" / "out"
    make_archive(archive, [("other", "symbolic link", "/etc/passwd"), ("more", "folder", "")], zipped)
    with untouched(place / OUTSIDE):
        extract(archive, GOOD, out)
    assert {name: content for name, content in contents(out).items() if content} == GOOD
    shutil.rmtree(out)


# ------------------------------------------------------------------------ evaluations and experiments


@pytest.fixture
def without_model(monkeypatch):
    """Evaluation where a model would translate every sentence as ``x``."""
    translated = SimpleNamespace(
        texts=["x"] * len(GERMAN), seconds=1.0, unfinished=[], as_fairseq_writes_it=lambda: "D-0\t0\tx\n"
    )
    task = SimpleNamespace(dataset=lambda subset: SimpleNamespace(src_sizes=np.full(len(GERMAN), 5)))
    pretended = {
        "load_checkpoint": {},
        "model_name": "model",
        "translation_direction": ("de", "en"),
        "read_dictionary": range(64),
        "load_model": (SimpleNamespace(max_positions=lambda: (1024, 1024)), task),
        "_length_flags": [],
        "translate_split": translated,
        "ceiling_of": SimpleNamespace(bleu=100.0),
    }
    monkeypatch.setattr(evaluation._Evaluator, "fit", lambda *args: ([], []))
    for name, value in pretended.items():
        monkeypatch.setattr(evaluation, name, lambda *args, value=value, **more: value)


def evaluate(place, folder, beam: int = 5) -> list:
    corpus = load_corpus("toys", place / "data")
    (folder / "a.pt").touch()  # its SHA-256 is taken
    options = evaluation.Options(beam=beam)
    return list(evaluation.evaluate(folder / "a.pt", corpus, ["exam"], folder / "evaluation", options))


@pytest.mark.parametrize("name", ["exam.en", "exam.json", "generate-test.txt"])
def test_no_link_among_translations_is_written_through(place, name, without_model, tmp_path):
    write_corpus(place, CORPUS)
    use_corpus(place)
    output = tmp_path / "evaluation"
    link(output / name, place, "new")
    with untouched(place / OUTSIDE):
        message = sentence(evaluate, place, tmp_path)
    assert message is not None and "leads out of" in message
    (output / name).unlink()
    assert sentence(evaluate, place, tmp_path) is None
    assert (output / "exam.json").is_file() and (output / "exam.en").is_file()


@pytest.mark.parametrize("beam", [0, -1, 65, 100_000, 10**1000])
def test_no_beam_is_wider_than_the_vocabulary(place, beam, without_model, tmp_path):
    """It would run until memory ends; it is refused before anything is written."""
    write_corpus(place, CORPUS)
    with pytest.raises(UserError, match=r"--beam .* give 1 to 64; the vocabulary has 64"):
        evaluate(place, tmp_path, beam)
    assert not (tmp_path / "evaluation").exists()


@search(60)
@hypothesis.given(st.data())
def test_no_name_of_an_experiment_leads_elsewhere(place, data):
    name = data.draw(hostile(place))
    run = {"name": "a", "config": "c.yaml"}
    key = data.draw(st.sampled_from(("name", "of")))
    path = place / "data" / "plan.yaml"
    path.write_text(yaml.safe_dump({"runs": [{**run, key: name}]}))
    message = sentence(read_plan, path, place)
    assert message is not None and re.search(rf"plan\.yaml, line \d: runs\[0\]\.{key} is", message)
    path.write_text(yaml.safe_dump({"runs": [{**run, key: "a.B-1_"}]}))
    assert sentence(read_plan, path, place) is None


@pytest.mark.parametrize("name", ["...yaml", "-x.yaml", "a\nb.yaml", f"{'x' * 101}.yaml"])
def test_an_experiment_has_its_files_name(tmp_path, name):
    (tmp_path / name).write_text("runs: [{name: a, config: c.yaml}]")
    with pytest.raises(UserError, match="the experiment's name"):
        read_plan(tmp_path / name, tmp_path)


@pytest.mark.parametrize(
    "override",
    [
        *("checkpoint.save_dir=/x", "++checkpoint.save_dir=/x", "checkpoint={save_dir: /x}", "+common={}"),
        *("common.log_file=/x", "common.user_dir=/x", " common.tensorboard_logdir=/x", "hydra.run.dir=/x"),
    ],
)
def test_no_override_of_an_experiment_leads_elsewhere(tmp_path, override):
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump({"runs": [{"name": "a", "config": "c", "overrides": [override]}]}))
    with pytest.raises(UserError, match=r"plan\.yaml, line \d+: .* cannot be an override"):
        read_plan(path, tmp_path)


@search(60)
@hypothesis.given(st.data())
def test_no_evaluation_names_other_translations(place, data):
    name = data.draw(hostile(place))
    told = {"test_set": "exam", "direction": "de-en", "references": "none", "bleu_signature": ""}
    key = data.draw(st.sampled_from(("test_set", "direction")))
    path = place / "data" / "exam.json"
    path.write_text(json.dumps({**told, key: name if key == "test_set" else f"de-{name}"}))
    (place / "data" / "exam.en").write_text("ein Satz\n")
    references = place / "data" / "references"
    references.write_text("a sentence\n")
    with untouched(place / OUTSIDE):
        message = sentence(read_systems, [("a", [path]), ("b", [path])], [references])
        assert message is not None
        if key == "direction":
            assert sentence(_translations, path) is not None
    path.write_text(json.dumps({**told, "references": str(references)}))
    assert sentence(read_systems, [("a", [path]), ("b", [path])], [references]) is None
    assert _translations(path) == place / "data" / "exam.en"


def test_within_follows_links(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "out").symlink_to("/nowhere/at/all")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    (tmp_path / "in").symlink_to(tmp_path / "folder")
    for name in ("in/new", "folder/new/new", "folder/../new", "."):
        assert within(tmp_path, tmp_path / name) == tmp_path / name
    for name in ("out", "out/new", "..", "in/../../new", "round", "a\0b"):
        with pytest.raises(UserError, match="leads out of"):
            within(tmp_path, tmp_path / name)
