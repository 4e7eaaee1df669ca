"""Too many unknown pieces end the preparation; some are told in the summary."""

from types import SimpleNamespace

import pytest
from commands import here
from tiny import joined, lines
from triplets import DESCRIPTION, MT, PE, SPECIAL, SRC, bert_vocabulary, write_triplets

from user_dir.corpora import binarise, load_corpus, raw_files
from user_dir.corpora.new_text import NewText
from user_dir.corpora.preparation import prepare
from user_dir.corpora.summary import summary
from user_dir.errors import UserError


@pytest.fixture(autouse=True)
def _preprocess_here(monkeypatch):
    """fairseq-preprocess runs in this process; test_binarise.py has it in a process of its own."""

    def run(command, cwd, **_):
        with monkeypatch.context() as patch:
            patch.chdir(cwd)
            here("preprocess", *command[3:])
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(binarise, "subprocess", SimpleNamespace(run=run, STDOUT=None))


def test_the_files_beside_the_vocabulary_say_how_text_is_treated(tmp_path):
    """Capitals are unknown to an uncased BERT, unless ``tokenizer_config.json`` is there."""
    folder = tmp_path / "data" / "mine"
    folder.mkdir(parents=True)
    (folder / "corpus.yaml").write_text(DESCRIPTION + "wordpiece: bert/vocab.txt\n")
    write_triplets(tmp_path / "raw")
    corpus = load_corpus("mine", folder.parent)
    folder = tmp_path / "raw" / "bert"
    folder.mkdir()
    tokens = [token for token in bert_vocabulary() if token in SPECIAL or token == token.lower()]
    tokens += sorted({token.lower() for token in bert_vocabulary()} - {*tokens, *map(str.lower, SPECIAL)})
    tokens = [token for token in tokens if "ä" not in token]
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    with pytest.raises(UserError, match=r"of the pieces of .* unknown .*bert/tokenizer_config.json"):
        prepare(corpus, tmp_path / "raw", workers=1)
    with pytest.raises(UserError, match="not prepared"):
        corpus.require_prepared()
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    prepare(corpus, tmp_path / "raw", workers=1)
    assert joined(corpus.segmented / "test.de") == [line.lower().replace("ä", "a") for line in PE]
    told = summary(corpus)
    assert told.count("src 0.00 %, mt 0.00 %, pe 0.00 %") == 3
    counted = [line.split() for line in lines(corpus.segmented / "valid.de")]
    cost = sum(map(len, counted)) / sum(len(line.split()) for line in PE)
    assert f"pe {cost:.2f}" in told
    given = [f"{src}\t{mt}" for src, mt in zip(SRC, MT)]
    assert list(NewText(corpus, "en").pieces(given)) == lines(corpus.segmented / "test.en")
    before = corpus.pieces.stat().st_mtime_ns
    prepare(corpus, workers=1)
    assert corpus.pieces.stat().st_mtime_ns == before and corpus.pieces.name == "tokenizer.json"


def test_the_tokenizer_may_lie_where_configs_name_the_bert(tmp_path, monkeypatch):
    monkeypatch.setattr(raw_files, "ROOT", tmp_path)
    folder = tmp_path / "data" / "mine"
    folder.mkdir(parents=True)
    (folder / "corpus.yaml").write_text(DESCRIPTION + "wordpiece: checkpoints/bert/vocab.txt\n")
    write_triplets(tmp_path / "raw")
    corpus = load_corpus("mine", folder.parent)
    with pytest.raises(UserError, match=r"checkpoints/bert/vocab\.txt"):
        prepare(corpus, tmp_path / "raw", workers=1)
    bert = tmp_path / "checkpoints" / "bert"
    bert.mkdir(parents=True)
    (bert / "vocab.txt").write_text("".join(f"{token}\n" for token in bert_vocabulary()))
    (bert / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    prepare(corpus, tmp_path / "raw", workers=1)
    assert corpus.pieces.name == "tokenizer.json"  # the file beside the vocabulary is read, too
    assert joined(corpus.segmented / "test.de") == PE
