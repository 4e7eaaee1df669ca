"""Archives in place of checkpoints: the same preprocessing, and refusals in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_release import contents, files_of, listed, tiny_checkpoint, tiny_corpus, write_tar
from tiny_splits import dictionary

from user_dir.checkpoints import load_checkpoint
from user_dir.corpora.new_text import NewText
from user_dir.errors import UserError
from user_dir.releases.archive import write_archive
from user_dir.releases.opened import opened
from user_dir.translation.translator import open_translator

KINDS = {
    "sentencepiece": (),
    "bytes": ("byte_fallback: true",),
    "normalised": ("normalise: {every: [lower_case], valid: []}",),
    "tokenised": ("tokenised: true",),
    "triplets": ("origin: triplets",),
    "wordpiece": ("origin: triplets", "wordpiece: bert/vocab.txt"),
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return tiny_checkpoint(tmp_path_factory.mktemp("checkpoint") / "last.pt")


def make(folder: Path, checkpoint: Path, *lines: str):
    """An archive, and the corpus that it is of."""
    corpus = tiny_corpus(folder, *lines)
    write_archive("mine", contents(corpus, checkpoint), folder / "mine.tar")
    return folder / "mine.tar", corpus


@pytest.mark.parametrize("kind", KINDS)
def test_new_text_is_preprocessed_as_by_the_corpus(kind, checkpoint, tmp_path):
    archive, corpus = make(tmp_path, checkpoint, *KINDS[kind])
    triplets = corpus.description.triplets
    text = ["The dog sleeps .\tDer HUND schlafen ." if triplets else "Der HUND schläft あ.", ""]
    expected = list(NewText(corpus, "de").pieces(text))
    with opened([archive]) as (checkpoints, found):
        assert found.description.tokenised == corpus.description.tokenised
        assert found.description.byte_fallback == corpus.description.byte_fallback
        assert list(NewText(found, "de").pieces(text)) == expected and expected[0]
        assert load_checkpoint(checkpoints[0])["cfg"]["task"]["target_lang"] == "en"
        folder = found.folder
    assert not folder.exists()


def test_the_kinds_preprocess_differently(checkpoint, tmp_path):
    found = set()
    for number, lines in enumerate(KINDS.values()):
        corpus = tiny_corpus(tmp_path / str(number), *lines)
        text = "a .\tB あ ." if corpus.description.triplets else "a . B あ ."
        found |= set(NewText(corpus, "de").pieces([text]))
    assert len(found) == len(KINDS) - 1, "only what is tokenised differs in what is done with translations"


def test_it_translates_after_the_context(checkpoint, tmp_path):
    archive, corpus = make(tmp_path, checkpoint)
    expected = open_translator([checkpoint], corpus, cpu=True, beam=2)(["Der Hund schläft."])
    with opened([archive]) as (checkpoints, found):
        translator = open_translator(checkpoints, found, cpu=True, beam=2)
    ((best,),) = translator(["Der Hund schläft."])
    ((reference,),) = expected
    assert (best.text, best.score) == (reference.text, reference.score)


def test_checkpoints_alone_are_passed_on(checkpoint, tmp_path):
    with opened([checkpoint, tmp_path / "missing.pt"]) as (checkpoints, corpus):
        assert checkpoints == [checkpoint, tmp_path / "missing.pt"] and corpus is None


def test_an_ensemble_has_one_preprocessing(checkpoint, tmp_path):
    archive, corpus = make(tmp_path / "a", checkpoint)
    files = contents(corpus, checkpoint)
    write_archive("mine", files | {"README.md": b"another"}, tmp_path / "same.tar")
    with opened([archive, checkpoint, tmp_path / "same.tar"]) as (checkpoints, found):
        assert len(set(checkpoints)) == 3 and checkpoints[1] == checkpoint and found.name == "mine"
    for name in ("corpus.yaml", "dict.de.txt"):
        write_archive("mine", files | {name: files[name].replace(b"\n", b" \n", 1)}, tmp_path / "other.tar")
        with (
            pytest.raises(UserError, match=r"other\.tar and .*mine\.tar preprocess text differently"),
            opened([archive, tmp_path / "other.tar"]),
        ):
            pass


def changed(name: str, content: bytes | None):
    def change(files: dict) -> dict:
        return (
            {**files, name: content} if content is not None else {k: v for k, v in files.items() if k != name}
        )

    return change


def described(old: bytes, new: bytes):
    return lambda files: {**files, "corpus.yaml": files["corpus.yaml"].replace(old, new)}


BAD = {
    "no pieces": (changed("spm.model", None), "is not a whole release: it lacks spm.model"),
    "no dictionary": (changed("dict.en.txt", None), "it lacks dict.en.txt"),
    "no checkpoint": (changed("model.pt", None), "it lacks model.safetensors"),
    "no description": (changed("corpus.yaml", None), "it lacks corpus.yaml"),
    "no card": (changed("README.md", None), "it lacks README.md"),
    "WordPiece, too": (changed("vocab.txt", b"x"), "contains vocab.txt, which does not belong to its corpus"),
    "a third dictionary": (changed("dict.fr.txt", b"a 1\n"), "contains dict.fr.txt"),
    "broken pieces": (changed("spm.model", b"x"), r"mine\.tar/spm\.model is not .*; get the archive again"),
    "broken dictionary": (changed("dict.de.txt", b"a b c"), r"mine\.tar/bin/dict\.de\.txt is not a fairseq"),
    "other languages": (described(b"de, en", b"fr, en"), "it lacks dict.fr.txt"),
    "wrong steps": (
        lambda files: {**files, "corpus.yaml": files["corpus.yaml"] + b"normalise: {every: [x]}\n"},
        r"mine\.tar/corpus\.yaml, line \d+: normalise",
    ),
    "YAML that is none": (changed("corpus.yaml", b"a: ["), r"mine\.tar/corpus\.yaml is not valid YAML"),
    "long YAML": (changed("corpus.yaml", b"#" * 70_000), "too large"),
}


@pytest.mark.parametrize("case", BAD)
def test_unusable_releases_are_refused(case, checkpoint, tmp_path):
    """Although their checksums are right."""
    archive, _ = make(tmp_path, checkpoint)
    change, message = BAD[case]
    write_tar(archive, listed(change(files_of(archive))))
    with pytest.raises(UserError, match=message) as refused, opened([archive]):
        pass
    assert "release-" not in str(refused.value)


class Code:
    def __reduce__(self):
        return print, ("it ran",)


def test_errors_about_its_files_name_the_archive(checkpoint, tmp_path, capsys):
    archive, _ = make(tmp_path, checkpoint)
    torch.save({"model": Code()}, tmp_path / "hostile.pt")
    files = files_of(archive)
    for content, message in (
        ((tmp_path / "hostile.pt").read_bytes(), r"mine\.tar/model\.pt is refused: .* could run code"),
        (b"x", r"mine\.tar/model\.pt is not a checkpoint"),
        (files["model.pt"][:1000], r"mine\.tar/model\.pt is not a checkpoint"),
    ):
        write_tar(archive, listed(files | {"model.pt": content}))
        with (
            pytest.raises(UserError, match=message) as refused,
            opened([archive]) as (checkpoints, corpus),
        ):
            open_translator(checkpoints, corpus, cpu=True)
        assert refused.value.code == f"error: {refused.value}" and "/release-" not in str(refused.value)
    assert "it ran" not in capsys.readouterr().out


def test_a_dictionary_of_another_model_is_refused(checkpoint, tmp_path):
    archive, _ = make(tmp_path, checkpoint)
    words = dictionary()
    words.add_symbol("one more")
    words.save(str(tmp_path / "dict.txt"))
    more = (tmp_path / "dict.txt").read_bytes().replace(b"one more", b"more")
    write_tar(archive, listed(files_of(archive) | {"dict.de.txt": more, "dict.en.txt": more}))
    with (
        pytest.raises(UserError, match=r"mine\.tar/model\.pt was trained with 24 symbols, but mine is .* 25"),
        opened([archive]) as (checkpoints, corpus),
    ):
        open_translator(checkpoints, corpus, cpu=True)
