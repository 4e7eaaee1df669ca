"""Files of an analysis are used again only if they are of what is asked for."""

from __future__ import annotations

from types import SimpleNamespace

from examples import sentence, write_maps, write_statistics

from user_dir.analysis.results import statistics_are_current


def test_files_of_too_few_sentences_are_not_used_again(tmp_path):
    """Statistics are of 50 sentences, maps of the first 3 of them."""
    checkpoint = tmp_path / "model.pt"
    checkpoint.touch()
    statistics = write_statistics(tmp_path / "model.valid.heads.json")
    about = {"corpus": "multi30k", "subset": "valid"}
    maps = write_maps(tmp_path / "model.valid.attention.npz", [sentence(seed=i) for i in range(3)], **about)
    text = tmp_path / "valid.de"
    corpus = SimpleNamespace(name="multi30k", languages=("de", "en"), text=lambda subset, language: text)

    def current(shown: int, maps=maps, lines: int = 50) -> bool:
        text.write_text("Ein Satz.\n" * lines)
        return statistics_are_current(statistics, maps, checkpoint, corpus, "valid", shown)

    assert current(2) and current(3)
    assert not current(4)
    assert current(4, maps=None), "maps are given"
    assert not current(2, lines=51), "statistics are of the first 50 of 51 sentences"
    write_maps(maps, [sentence(seed=i) for i in range(50)], **about)
    assert current(60), "there are no more"
