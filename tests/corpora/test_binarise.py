import pytest
from commands import script
from tiny import write

from user_dir.config import check_config
from user_dir.corpora import load_corpus
from user_dir.corpora.binarise import preprocess, write_dictionary
from user_dir.corpora.starter_configs import write_configs
from user_dir.errors import UserError


def test_the_dictionary(tmp_path):
    size = write_dictionary(["▁a", "b", "c"], ["▁a b b", "▁a b unknown"], tmp_path / "dict.txt")
    assert (tmp_path / "dict.txt").read_text(encoding="utf-8") == "b 3\n▁a 2\nc 0\nmadeupword0000 0\n"
    assert size == 8


@pytest.mark.slow
def test_a_failure_of_fairseq_is_one_error_message(tmp_path):
    (tmp_path / "dict.txt").write_text("a 1\n")
    (tmp_path / "out").mkdir()
    with pytest.raises(UserError, match=r"fairseq-preprocess failed with status 1: .*train") as caught:
        preprocess(
            ("de", "en"), ["train", "valid", "test"], tmp_path, tmp_path / "dict.txt", tmp_path / "out", 1
        )
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["data", "a comma, a space"])
def test_the_binarised_data_equal_the_text(data, raw, folder):
    data = data.rename(data.parent / folder)
    write(raw / "second.de", ["Der\u2028Hund.", "Die\x85Katze\x1c."])
    done = script("prepare", "tiny", "--raw", raw, "--data", data)
    assert "40 pairs" in done.stdout and "next: python scripts/prepare.py tiny --config" in done.stdout

    from fairseq.data import Dictionary, data_utils

    corpus = load_corpus("tiny", data).require_prepared()
    assert (corpus.bin / "dict.de.txt").read_bytes() == (corpus.bin / "dict.en.txt").read_bytes()
    dictionary = Dictionary.load(str(corpus.bin / "dict.de.txt"))
    assert len(dictionary) % 8 == 0
    for subset in corpus.subsets.values():
        for language in corpus.languages:
            prefix = corpus.bin / f"{subset}.de-en.{language}"
            rows = data_utils.load_indexed_dataset(str(prefix), dictionary)
            assert len(rows) == len(corpus.text(subset, language).read_bytes().split(b"\n")) - 1
            if (subset, language) == ("test1", "de"):
                continue  # separators become spaces
            decoded = [dictionary.string(rows[i], bpe_symbol="sentencepiece") for i in range(len(rows))]
            assert decoded == corpus.text(subset, language).read_text(encoding="utf-8").split("\n")[:-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["tinny"], "error: there is no corpus 'tinny'; choose from iwslt14-de-en, "),
        (["tiny", "--raw", "nowhere"], "error: --raw nowhere is not a folder"),
        (["tiny", "--raw", "{raw}", "--vocab-size", "99999"], "error: the training text is too small"),
        (["tiny", "--data", "/dev/null"], "error: there is no corpus 'tiny'"),
    ],
)
def test_a_mistake_ends_with_one_error_message(data, raw, arguments, complaint):
    arguments = [str(raw) if each == "{raw}" else each for each in arguments]
    if "--data" not in arguments:
        arguments += ["--data", str(data)]
    done = script("prepare", *arguments, check=False)
    assert done.returncode == 1
    assert done.stderr.strip().split("\n")[-1].startswith(complaint)
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_two_text_files_and_three_lines_are_a_corpus(data, raw):
    described = data / "tiny" / "corpus.yaml"
    splits = "splits: {train: 'train.{language}', valid: {held_out: 4}}"
    described.write_text(f"title: ours\nlanguages: [de, en]\n{splits}\n")
    done = script("prepare", "tiny", "--raw", raw, "--data", data)
    assert "the training text has no more" in done.stderr
    corpus = load_corpus("tiny", data).require_prepared()
    assert corpus.test_sets == {}
    assert not list(corpus.bin.glob("test*"))
    for path in write_configs(corpus, data.parent).parent.glob("*m*x*.yaml"):
        assert check_config(path, [], data.parent)["task"]["data"] == "data/tiny/bin"


@pytest.mark.slow
def test_a_full_disk(data, raw):
    """Files are limited to 500 bytes by the system, which simulates a full disk."""
    command = ["prepare", "tiny", "--raw", raw, "--data", data]
    limited = script(*command, check=False, file_size=500)
    assert limited.returncode == 1
    assert limited.stderr.strip().split("\n")[-1].startswith("error: ") and "too large" in limited.stderr
    assert "Traceback" not in limited.stderr
    corpus = load_corpus("tiny", data)
    assert [path.name for path in corpus.folder.rglob("*") if path.is_file()] == ["corpus.yaml"]
    with pytest.raises(UserError, match="not prepared"):
        corpus.require_prepared()
    script(*command)
    assert corpus.require_prepared()
