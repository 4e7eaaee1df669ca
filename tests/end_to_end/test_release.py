"""A release as its user meets it: built by the script, moved elsewhere, translated from without a corpus."""

from __future__ import annotations

import shutil
import tarfile
import zipfile

import pytest
from commands import of, refused, script

pytestmark = pytest.mark.slow
SENTENCES = ["Wer sieht den kleinen Hund?", "Das Kind schläft."]


@pytest.fixture(scope="module")
def released(corpus, trained, once):
    """An archive, alone in its folder, whose card has scores; the same model stays in ``trained``."""

    def fill(folder):
        checkpoint = shutil.copy(trained / "checkpoint_last.pt", folder / "last.pt")
        given = of(checkpoint, corpus)
        script("evaluate", *given, "--beam", "1", "--max-len-b", "8", "--subset", "test")
        done = script("release", *given)
        assert "scores of test" in done.stdout and "last.release.tar  SHA-256 " in done.stdout
        (folder / "elsewhere").mkdir()
        (folder / "last.release.tar").rename(folder / "elsewhere" / "toy.tar")

    return once("released", fill) / "elsewhere" / "toy.tar"


def test_it_translates_as_its_checkpoint_does(released, corpus, trained, tmp_path):
    """From arguments and through a pipe, alone and in an ensemble, in a folder without data."""
    checkpoint = of(trained / "checkpoint_last.pt", corpus)
    flags = ["--beam", "2", "--nbest", "2"]
    expected = script("translate", *checkpoint, *flags, *SENTENCES).stdout
    assert len(expected.splitlines()) == 4
    path, bare = ["--path", released], {"cwd": tmp_path}
    assert script("translate", *path, *flags, *SENTENCES, **bare).stdout == expected
    text = "".join(f"{line}\n" for line in SENTENCES)
    assert script("translate", *path, *flags, stdin=text, **bare).stdout == expected
    assert script("translate", *path, *path, *flags, *SENTENCES, **bare).stdout == expected
    aligned = script("translate", *checkpoint, "--beam", "2", "--alignment", *SENTENCES).stdout
    assert script("translate", *path, "--beam", "2", "--alignment", *SENTENCES, **bare).stdout == aligned
    assert all("-" in line.split("\t")[1] for line in aligned.splitlines())
    page = tmp_path / "heads.html"
    script("translate", *path, "--report", page, *SENTENCES, **bare)
    assert str(released) in page.read_text(encoding="utf-8")


def test_it_has_the_package_and_the_scores(released, tmp_path):
    with tarfile.open(released) as archive:
        archive.extractall(tmp_path, filter="data")
    (wheel,) = tmp_path.glob("*.whl")
    assert "adaptively_sparse/releases/opened.py" in zipfile.ZipFile(wheel).namelist()
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert wheel.name in card and "| test | 400 | 1 | 1 |" in card


def test_mistakes_are_told_in_a_sentence(released, trained, corpus, tmp_path):
    content = released.read_bytes()
    (tmp_path / "cut.tar").write_bytes(content[: len(content) // 2])
    output = tmp_path / "out.en"
    done = script("translate", "--path", tmp_path / "cut.tar", "--output", output, "Gut.", check=False)
    refused(done, "cut.tar is cut short: it ends within")
    assert not output.exists()
    refused(script("translate", "--path", released, "--corpus", "toy", "Gut.", check=False), "omit them")
    checkpoint = ["--path", trained / "checkpoint_last.pt", "--data", corpus.parent]
    output = ["--output", tmp_path / "new.tar"]
    folder = ["--evaluation", tmp_path / "none"]
    refused(script("release", *checkpoint, *output, *folder, check=False), "--evaluation", "no such folder")
    refused(script("release", *checkpoint, "--output", tmp_path / "new.zip", check=False), "must end in .tar")
    wrong = ["--path", corpus / "spm.model", "--data", corpus.parent]
    refused(script("release", *wrong, *output, check=False), "not a checkpoint")
    assert not (tmp_path / "new.tar").exists()
