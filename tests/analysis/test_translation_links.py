"""Links between the words of sentences as given and of translations as printed."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
from helpers import batch, build, dictionary

from user_dir.analysis import alignment_choice
from user_dir.analysis.alignment import candidates, links, word_weights
from user_dir.analysis.alignment_choice import Choice
from user_dir.analysis.capture import captured_attention
from user_dir.analysis.translation_links import Pair, TranslationAligner, words_of
from user_dir.errors import UserError


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
    source_dictionary = target_dictionary = dictionary()
    cfg = SimpleNamespace(left_pad_source=True, left_pad_target=False)  # fairseq's defaults


FLAGS = "--encoder-normalize-before --decoder-normalize-before"


def pairs() -> list[Pair]:
    """Sentences of unequal lengths; in this dictionary every token is a word."""
    words, found = dictionary(), []
    for source, target in zip(batch()["src_tokens"], batch()["target"]):
        source, target = source[source.ne(words.pad())], target[target.ne(words.pad())]
        found.append(Pair(words.string(source), source.numpy(), words.string(target), target.numpy()))
    return found


@pytest.mark.parametrize("query", ("output", "input"))
@pytest.mark.parametrize("name", ("layer0-head1", "layer1", "all", "alignment"))
def test_links_are_those_of_each_pair_alone(name, query):
    model = build(f"{FLAGS} --latent-alignment" if name == "alignment" else FLAGS).eval()
    given = pairs()
    found = TranslationAligner([model], Task, [Choice(name, query)], max_tokens=12)(given)
    for each, mine in zip(given, found):
        source, target = (torch.from_numpy(tokens)[None] for tokens in (each.source, each.target))
        sample = {"net_input": {"src_tokens": source, "prev_output_tokens": target.roll(1)}}
        sample["net_input"]["src_lengths"] = torch.tensor([len(each.source)])
        sample["target"] = target
        key = torch.tensor([[*range(len(each.source) - 1), -1]])
        n = len(each.target) - 1
        predicts = torch.tensor([[*range(n), -1]] if query == "output" else [[-1, *range(n)]])
        with torch.no_grad(), captured_attention(model) as captured:
            model(**sample["net_input"])
            latent = None
            if name == "alignment":
                latent = word_weights(model.posterior_alignment(sample)[:, None], predicts, key)[:, 0]
        context = [word_weights(x, predicts, key) for x in captured["decoder_context"]]
        weights = next(x for other, _, x in candidates(context, latent) if other == name)
        assert mine == links(weights)[0]
        assert mine and max(target for _, target in mine) < n


def test_several_models_are_averaged():
    models = [build(FLAGS, seed=seed).eval() for seed in (1, 2)]
    choice = Choice("layer1-head0", "output")
    alone = [TranslationAligner([model], Task, [choice], 4096)(pairs()) for model in models]
    both = TranslationAligner(models, Task, [choice, choice], 4096)(pairs())
    assert alone[0] != alone[1]
    assert both == TranslationAligner(models[::-1], Task, [choice, choice], 4096)(pairs())
    for one, other, mine in zip(*alone, both):
        assert not set(one) & set(other) - set(mine)  # what both link stays


def test_a_head_that_the_model_lacks_is_named():
    model = build(FLAGS).eval()
    for name in ("layer2-head0", "layer0-head9", "alignment"):
        with pytest.raises(UserError, match=f"no {name} .*layer0-head0, .*all$"):
            TranslationAligner([model], Task, [Choice(name, "output")], 4096)
    without = build("--no-cross-attention").eval()
    with pytest.raises(UserError, match="only none"):
        TranslationAligner([without], Task, [Choice("all", "output")], 4096)


def test_choices_that_are_given():
    assert alignment_choice.given("3") == Choice("layer3", "output")
    assert alignment_choice.given("03:0@input") == Choice("layer3-head0", "input")
    for text in ("", "a", "1:", ":1", "-1", "1:2:3", "1@in", "1 ", "²", "9" * 5):
        with pytest.raises(UserError, match="give LAYER or LAYER:HEAD"):
            alignment_choice.given(text)


def test_a_choice_is_remembered_for_the_same_checkpoint_only(tmp_path):
    checkpoint, choice = tmp_path / "average.pt", Choice("layer1-head0", "input")
    checkpoint.write_bytes(b"a model")
    assert alignment_choice.remembered(checkpoint) is None
    place = alignment_choice.remember(checkpoint, choice, "aer")
    assert alignment_choice.remembered(checkpoint) == choice
    checkpoint.write_bytes(b"another")
    assert alignment_choice.remembered(checkpoint) is None
    place.write_text(json.dumps({"name": "all"}))
    with pytest.raises(UserError, match=r"average\.json.*remove it"):
        alignment_choice.remembered(checkpoint)


@pytest.mark.parametrize(
    "extra, expected",
    (
        (None, None),
        ({}, None),
        ({"alignment": "layer1-head0@input"}, Choice("layer1-head0", "input")),
        ({"alignment": "all@output"}, Choice("all", "output")),
        ({"alignment": "all@both"}, None),
        ({"alignment": "../x@input"}, None),
        ({"alignment": ["layer1"]}, None),
    ),
)
def test_the_choice_of_a_release(extra, expected):
    assert alignment_choice.released({"extra_state": extra}) == expected
