"""The toy corpus, whose text and gold alignments come with the repository."""

import re

from user_dir.corpora import load_corpus
from user_dir.corpora.download import RawFiles
from user_dir.corpora.readers import read_lines
from user_dir.files import DATA


def pairs(corpus, split):
    """The pairs of a split of the toy corpus."""
    files = RawFiles(corpus)
    names = corpus.description.sources(split)[0].file
    return list(zip(*(read_lines(files.path_of(names[language])) for language in corpus.languages)))


def test_splits_are_disjoint_and_have_their_sizes():
    corpus = load_corpus("toy")
    splits = {name: pairs(corpus, name) for name in corpus.subsets}
    assert {name: len(split) for name, split in splits.items()} == {"train": 8000, "valid": 400, "test": 400}
    for side in (0, 1):
        assert len({pair[side] for split in splits.values() for pair in split}) == 8800


def test_text_beside_the_description_is_used_in_another_data_folder(tmp_path):
    there = load_corpus("toy", tmp_path)
    assert RawFiles(there).digests() == RawFiles(load_corpus("toy")).digests()
    (there.raw).mkdir(parents=True)  # one's own file comes first
    (there.raw / "valid.de").write_text("Gut.\n", encoding="utf-8")
    (there.raw / "valid.en").write_text("Good.\n", encoding="utf-8")
    assert pairs(there, "valid") == [("Gut.", "Good.")]


def test_gold_links_are_within_their_sentences():
    corpus = load_corpus("toy")
    sure = 0
    for split in ("valid", "test"):
        lines = (DATA / "toy" / "gold" / f"{split}.pharaoh").read_text(encoding="utf-8").splitlines()
        for (german, english), line in zip(pairs(corpus, split), lines, strict=True):
            for source, kind, target in re.findall(r"(\d+)([-?])(\d+)", line):
                assert int(source) < len(german.split())
                assert int(target) < len(english.split())
                sure += kind == "-"
    assert sure > 2000
