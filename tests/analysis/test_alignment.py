"""Links, Pharaoh format, gold files, error rates as defined, and links of translations."""

from __future__ import annotations

import math
from argparse import Namespace
from collections import Counter
from itertools import product
from types import SimpleNamespace

import helpers
import pytest
import torch
from sentences import as_batch, dictionary

from user_dir.analysis.alignment import (
    align_split,
    error_rate,
    links,
    pharaoh,
    read_gold,
    told_bits,
    word_weights,
)
from user_dir.analysis.capture import captured_attention
from user_dir.analysis.translation_links import (
    TranslationAligner,
    choice_for,
    parse_choice,
    words_of,
)
from user_dir.analysis.words import Pieces
from user_dir.checkpoints import save_checkpoint
from user_dir.errors import UserError


def test_word_weights_sum_over_source_pieces_and_average_over_target_pieces():
    generator = torch.Generator().manual_seed(3)
    weights = torch.rand(2, 3, 5, 6, generator=generator, dtype=torch.float64)
    query = torch.tensor([[-1, 0, 0, 1, 2], [0, 1, -1, -1, -1]])
    key = torch.tensor([[0, 0, 1, 2, 2, -1], [-1, -1, -1, 0, 1, -1]])
    by_word = word_weights(weights, query, key)
    assert by_word.shape == (2, 3, 3, 3)
    for b, h, target, source in product(range(2), range(3), range(3), range(3)):
        rows = [t for t in range(5) if query[b, t] == target]
        columns = [s for s in range(6) if key[b, s] == source]
        total = sum(float(weights[b, h, t, s]) for t in rows for s in columns)
        expected = total / len(rows) if rows else 0.0
        assert float(by_word[b, h, target, source]) == pytest.approx(expected)


def test_links_go_to_the_largest_weight_and_zeros_have_none():
    weights = torch.tensor([[0.2, 0.7, 0.1], [0.0, 0.0, 0.0], [0.4, 0.1, 0.4]])
    assert links(torch.stack([weights, weights.flip(1)])) == [[(1, 0), (0, 2)], [(1, 0), (0, 2)]]
    assert pharaoh(links(weights[None])[0]) == "1-0 0-2"
    assert links(torch.zeros(2, 0, 3)) == links(torch.zeros(2, 2, 0)) == [[], []]
    assert pharaoh([]) == ""


def test_bits_are_those_of_the_definition():
    """Link by link: the others of the same source word, and one distributed as the target words."""
    links_found = [("a", "x"), ("a", "x"), ("b", "y"), (None, "y"), ("b", "x"), ("a", "z"), ("a", "x")]
    expected = 0.0
    for number, (source, target) in enumerate(links_found):
        others = [link for i, link in enumerate(links_found) if i != number and link[0] == source]
        p = sum(word == target for _, word in links_found) / len(links_found)
        there = sum(word == target for _, word in others)
        expected += math.log2((there + p) / (len(others) + 1) / p) / len(links_found)
    assert told_bits(Counter(links_found)) == pytest.approx(expected)
    assert told_bits(Counter()) is None
    words = [f"w{i % 7}" for i in range(70)]
    known, shifted = Counter(zip(words, words)), Counter({(None, word): 10 for word in words})
    assert told_bits(known) > 2
    assert told_bits(shifted) < 0


def test_error_rate_is_that_of_och_and_ney():
    aligned = [[(0, 0), (2, 1), (3, 3)], [(0, 0)]]
    gold = [({(0, 0), (1, 1)}, {(0, 0), (1, 1), (2, 1), (2, 2)}), ({(0, 0)}, {(0, 0)})]
    assert error_rate([], []) == {"aer": None, "precision": None, "recall": None}
    assert error_rate(aligned[:1], gold[:1]) == {
        "aer": pytest.approx(1 - (1 + 2) / (3 + 2)),
        "precision": pytest.approx(2 / 3),
        "recall": pytest.approx(1 / 2),
    }
    assert error_rate(aligned, gold)["aer"] == pytest.approx(1 - (2 + 3) / (4 + 3)), "counts add up"
    assert error_rate([[(0, 0), (2, 2)]], [({(0, 0)}, {(0, 0), (2, 2)})])["aer"] == 0


def test_gold_files(tmp_path):
    path = tmp_path / "gold"
    path.write_text("0-0 1?2 2p1\n\n1-0\n")
    gold = read_gold(path)
    assert len(gold) == 3
    assert gold[0] == ({(0, 0)}, {(0, 0), (1, 2), (2, 1)})
    assert gold[1] == (frozenset(), frozenset())
    assert len(read_gold(path, sentences=2)) == 2
    for word in ("0:0", "0-", "-1-0", "1-²"):
        path.write_text(f"0-0\n0-0 {word}\n", encoding="utf-8")
        with pytest.raises(UserError, match=r"gold, line 2: .* is not a link"):
            read_gold(path)


class Copier(torch.nn.Module):
    """Context attention with given weights: head 0 has those of a table, head 1 attends to the first key."""

    alignment = None  # not a latent one

    def __init__(self, tables: list[torch.Tensor]):
        super().__init__()
        self.attention, self.tables = Attention(), tables

    def attentions(self):
        return {"decoder_context": [self.attention]}

    def forward(self, src_tokens, src_lengths, prev_output_tokens):
        self.attention(self.tables.pop(0))


class Attention(torch.nn.Module):
    def forward(self, table, need_weights=False, need_head_weights=False):
        first = torch.zeros_like(table)
        first[..., 0] = 1
        return None, torch.stack([table, first])  # (H, B, T, S)


def split_of(tables: list[torch.Tensor], samples: list[dict]) -> SimpleNamespace:
    pieces = Pieces(dictionary(), "xx")
    methods = {"samples": lambda in_order: samples, "pieces": lambda: (pieces, pieces)}
    return SimpleNamespace(model=Copier(tables), **methods)


def test_a_split_is_aligned_in_corpus_order(tmp_path):
    """Two batches, the first in shuffled order; right padding, so that keys count from 0."""
    words = dictionary()
    first = as_batch(words, [("▁la ke . ▁who", "▁who ▁la ke"), ("▁the", "▁lake .")], left_pad_source=False)
    first["id"] = torch.tensor([1, 0])
    second = as_batch(words, [("▁the ▁wa s", "")], left_pad_source=False)
    second["id"] = torch.tensor([2])
    table = torch.zeros(2, 4, 5)
    table[0, 0, 3] = 1  # ▁who to ▁who
    table[0, 1, 4] = 1  # ▁la only to </s>: no link
    table[0, 2, 1], table[0, 2, 3] = 0.6, 0.4  # ke to ke
    table[1, :2, 0] = 1  # ▁lake . is one word when split at spaces
    both = {(1, 0), (0, 1)}
    gold = [({(0, 0)}, {(0, 0)}), ({(1, 0)}, both), (set(), set())]
    split = split_of([table, torch.ones(1, 1, 4) / 4], [first, second])
    report = align_split(split, tmp_path / "out", gold)
    lines = {path.stem: path.read_text() for path in (tmp_path / "out").glob("*.pharaoh")}
    assert set(lines) == {"layer0-head0", "layer0-head1", "layer0", "all"}
    assert lines["layer0-head0"] == "0-0\n1-0 0-1\n\n"
    assert lines["layer0-head1"] == "0-0\n0-0 0-1\n\n"
    rows = {row["name"]: row for row in report["candidates"]}
    assert rows["layer0-head0"]["aer"] == 0
    assert rows["layer0-head0"]["aligned"] == 1
    assert rows["layer0-head1"]["aer"] == pytest.approx(1 - (1 + 2) / (3 + 2))
    assert report["sentences"] == 3


def test_gold_that_does_not_fit_leaves_no_files(tmp_path):
    words = dictionary()
    sample = as_batch(words, [("▁the", "▁the")] * 2, left_pad_source=False)
    line, outside = ({(0, 0)}, {(0, 0)}), (set(), {(0, 1)})
    said = "the gold alignment has "
    for gold, message in (
        ([line], f"{said}1 lines"),
        ([line] * 3, f"{said}3 lines"),
        ([line, outside], "line 2"),
    ):
        with pytest.raises(UserError, match=message):
            align_split(split_of([torch.ones(2, 2, 2) / 2], [sample]), tmp_path / "out", gold)
    assert not list(tmp_path.glob("out/*"))


@pytest.mark.parametrize(
    "text, pieces, expected",
    (
        ("Wer sieht's?", ["Wer", "sie", "ht", "'", "s", "?", None], [0, 1, 1, 1, 1, 1, -1]),
        ("  Ein\u00a0 Hund\t\u3000läuft ", ["E", "in", "Hund", "läuft", None], [0, 0, 1, 2, -1]),
        ("EIN Hund", ["ein", "hu", "nd", None], [0, 1, 1, -1]),
        ("a \u200b b", ["a", "b", None], [0, 2, -1]),  # a word that pieces drop
        ("x Ωß y", ["x", "\ufffd", "y", None], [0, 1, 2, -1]),  # an unknown one
        ("½ l Milch", ["1⁄2", "l", "Milch", None], [0, 1, 2, -1]),
        ("he said: “no”", ["he", "said", ":", '"', "no", '"', None], [0, 1, 1, 2, 2, 2, -1]),
        ("a b", ["", "a", "", "b", "", None], [0, 0, 1, 1, 1, -1]),
        ("", ["x", None], [-1, -1]),
        ("src mt", ["src", None, "mt", None], [0, -1, 1, -1]),  # of a post-editor
    ),
)
def test_words_that_pieces_begin_in(text, pieces, expected):
    assert words_of(text, pieces) == expected


class Task:
    source_dictionary = target_dictionary = helpers.dictionary()
    cfg = SimpleNamespace(left_pad_source=True, left_pad_target=False)  # fairseq's defaults


FLAGS = "--encoder-normalize-before --decoder-normalize-before"


def pairs() -> tuple[list, list, list]:
    """Sentences of unequal lengths, their tokens, and two hypotheses; every token is a word."""
    words, texts, encoded, translations = helpers.dictionary(), [], [], []
    for source, target in zip(helpers.batch()["src_tokens"], helpers.batch()["target"]):
        source, target = source[source.ne(words.pad())], target[target.ne(words.pad())]
        texts.append(words.string(source))
        encoded.append(source.numpy())
        both = (target, target[1:])
        translations.append([SimpleNamespace(text=words.string(x), tokens=x.numpy()) for x in both])
    return texts, encoded, translations


@pytest.mark.parametrize(
    "name, query, part",
    (
        ("layer0-head1", "output", lambda layers: layers[0][:, 1:2]),
        ("layer1", "input", lambda layers: layers[1]),
        ("all", "output", lambda layers: torch.cat(layers, 1)),
        ("alignment", "output", None),
    ),
)
def test_links_are_those_of_each_pair_alone(name, query, part):
    model = helpers.build(f"{FLAGS} --latent-alignment" if name == "alignment" else FLAGS).eval()
    texts, encoded, translations = pairs()
    aligner = TranslationAligner(model, Task, f"{name}@{query}", max_tokens=12)
    alignments = aligner(texts, encoded, translations)
    assert list(map(len, alignments)) == list(map(len, translations))
    for source, hypotheses, of_sentence in zip(encoded, translations, alignments):
        for hypothesis, mine in zip(hypotheses, of_sentence):
            target, source_tokens = torch.from_numpy(hypothesis.tokens)[None], torch.from_numpy(source)[None]
            sample = {"net_input": {"src_tokens": source_tokens, "prev_output_tokens": target.roll(1)}}
            sample["net_input"]["src_lengths"] = torch.tensor([len(source)])
            sample["target"] = target
            key = torch.tensor([[*range(len(source) - 1), -1]])
            n = target.size(1) - 1
            predicts = torch.tensor([[*range(n), -1]] if query == "output" else [[-1, *range(n)]])
            with torch.no_grad(), captured_attention(model) as captured:
                model(**sample["net_input"])
                latent = model.posterior_alignment(sample)[:, None] if part is None else None
            weights = latent if part is None else part(captured["decoder_context"])
            assert mine == pharaoh(links(word_weights(weights, predicts, key).mean(1))[0])


def test_a_head_that_the_model_lacks_is_named():
    model = helpers.build(FLAGS).eval()
    for name in ("layer2-head0", "alignment"):
        with pytest.raises(UserError, match=f"no {name} .*layer0-head0, .*all$"):
            TranslationAligner(model, Task, f"{name}@output", 4096)(*pairs())


def test_choices_that_are_given():
    assert parse_choice("3") == "layer3@output"
    assert parse_choice("03:0@input") == "layer3-head0@input"
    for text in ("", "a", "1:", "-1", "1:2:3", "1@in", "²"):
        with pytest.raises(UserError, match="give LAYER or LAYER:HEAD"):
            parse_choice(text)


def test_a_checkpoint_may_bring_its_choice(tmp_path):
    checkpoint = tmp_path / "average.pt"
    state = {"model": {}, "cfg": {"model": Namespace(arch="a"), "task": Namespace(data="b")}}
    save_checkpoint({**state, "extra_state": {"alignment": "all@output"}}, checkpoint)
    assert choice_for(checkpoint, None) == "all@output"
    assert choice_for(checkpoint, None, "1:0@input") == "layer1-head0@input"
