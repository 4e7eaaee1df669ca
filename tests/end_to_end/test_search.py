"""fairseq's commands with a trained model: every kind of search, alignments, ensembles, export.

With learned α, scores of words are compared with the model given the whole translation at once with dense
attention; if a search changes the scores, our model at α = 1 is compared with the stock model.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from commands import PLUGIN, here
from fairseq import checkpoint_utils, hub_utils
from fairseq.logging.progress_bar import SimpleProgressBar

from user_dir.checkpoints import load_checkpoint, model_settings, save_checkpoint
from user_dir.models import AdaptivelySparseTransformerModel
from user_dir.models.transformer import from_stock

pytestmark = pytest.mark.slow

SENTENCES = 12
LENGTH = ["--max-len-a", "0", "--max-len-b", "8"]
ROUNDED = 6e-4  # fairseq prints four digits; the rest is float32 rounding


@pytest.fixture(scope="module")
def few(corpus, tmp_path_factory) -> Path:
    """A folder with a few sentences as text, binarised by ``fairseq-preprocess``."""
    folder = tmp_path_factory.mktemp("few")
    for language in ("de", "en"):
        for kind in ("", "spm"):
            lines = (corpus / "text" / kind / f"valid.{language}").read_text().split("\n")[:SENTENCES]
            (folder / f"{kind or 'text'}.{language}").write_text("\n".join(lines) + "\n")
    flags = [
        "--source-lang",
        "de",
        "--target-lang",
        "en",
        "--testpref",
        folder / "spm",
        "--joined-dictionary",
    ]
    here("preprocess", *flags, "--srcdict", corpus / "bin" / "dict.de.txt", "--destdir", folder / "bin")
    return folder


@pytest.fixture(scope="module")
def ours(trained, tmp_path_factory) -> Path:
    """Two checkpoints of the trained model, ``first.pt`` and ``second.pt``, with different parameters.

    After a few updates attention is almost uniform; queries scaled by ten make many weights zero.
    """
    folder = tmp_path_factory.mktemp("ours")
    for name, source, factor in (("first", "checkpoint_last", 10), ("second", "checkpoint_1_6", 5)):
        state = load_checkpoint(trained / f"{source}.pt")
        for parameter, value in state["model"].items():
            if ".q_proj." in parameter:
                value *= factor
        save_checkpoint(state, folder / f"{name}.pt")
    return folder / "first.pt"


@pytest.fixture(scope="module")
def at_one(stock, tmp_path_factory) -> Path:
    """The stock checkpoint converted to our model."""
    path = tmp_path_factory.mktemp("converted") / "converted.pt"
    state = load_checkpoint(stock)
    state["cfg"]["model"] = from_stock(model_settings(state))
    save_checkpoint(state, path)
    assert load_checkpoint(path)["cfg"]["model"].fixed_alpha == 1
    return path


@pytest.fixture
def generate(few):
    def run_it(path, *flags) -> str:
        data = [few / "bin", *PLUGIN, "--cpu", "--path", path, "--gen-subset", "test", *LENGTH]
        return here("generate", *data, "--batch-size", 8, *flags)

    return run_it


@pytest.fixture
def interactive(few, corpus):
    def run_it(path, text, *flags) -> str:
        data = [few / "bin", *PLUGIN, "--cpu", "--path", path, *LENGTH]
        pieces = ["--bpe", "sentencepiece", "--sentencepiece-model", corpus / "spm.model"]
        return here("interactive", *data, *pieces, *flags, stdin=text)

    return run_it


def lines(output: str, letter: str) -> list[tuple[int, str]]:
    """Sentence numbers and last columns of the lines with this prefix, ordered by sentence."""
    matches = re.findall(rf"^{letter}-(\d+)\t(?:[^\t\n]*\t)?([^\t\n]*)$", output, flags=re.M)
    return sorted(((int(number), text) for number, text in matches), key=lambda line: line[0])


def numbers(output: str) -> list[torch.Tensor]:
    return [torch.tensor([float(x) for x in text.split()]) for _, text in lines(output, "P")]


def assert_same(left: list[torch.Tensor], right: list[torch.Tensor], tolerance: float = ROUNDED) -> None:
    assert len(left) == len(right) > 0
    for a, b in zip(left, right):
        torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


class Whole:
    """Models applied to whole translations, one sentence at a time, with dense attention."""

    def __init__(self, few: Path, *paths):
        overrides = {"data": str(few / "bin")}
        names = [str(path) for path in paths]
        self.models, _, task = checkpoint_utils.load_model_ensemble_and_task(names, overrides)
        for model in self.models:
            for attention in getattr(model, "attentions", dict)().get("decoder_context", []):
                attention.backend = "dense"
        self.words = task.target_dictionary

    def __call__(self, source: str, target: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Base-2 log-probabilities of the target's words, (T,), and the last context attention, (T, S)."""
        source, target = (self.words.encode_line(text).long()[None] for text in (source, target))
        previous = target.roll(1, dims=1)
        probabilities, weights = [], []
        with torch.no_grad():
            for model in self.models:
                out, extra = model.eval()(source, torch.tensor([source.size(1)]), previous)
                probabilities.append(out.softmax(-1).gather(2, target[..., None])[0, :, 0])
                weights.append(extra["attn"][0][0])
        return torch.stack(probabilities).mean(0).log2(), torch.stack(weights).mean(0)

    def of(self, output: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The same for each hypothesis printed by a command."""
        sources = dict(lines(output, "S"))
        return [self(sources[number], target) for number, target in lines(output, "H")]


@pytest.fixture(scope="module")
def whole(few, ours) -> Whole:
    return Whole(few, ours)


# ------------------------------------------------------------------------------------------- searches

SAMPLING = ["--sampling", "--beam", 3, "--nbest", 3, "--seed", 5]
# Searches whose scores are those of the model, not modified by the search.
PLAIN = {
    "n-best": ["--beam", 4, "--nbest", 4, "--lenpen", 0.6],
    "top p": [*SAMPLING, "--sampling-topp", 0.3],
    "no repeats": ["--beam", 3, "--no-repeat-ngram-size", 1, "--min-len", 3, "--unnormalized"],
    "reference": ["--score-reference"],
}
OTHER = {
    "beam": ["--beam", 2],
    "sampling": SAMPLING,
    "temperature": ["--beam", 3, "--temperature", 2, "--unkpen", 1],
}


@pytest.mark.parametrize("search", OTHER)
def test_search_at_alpha_one_equals_stock(generate, stock, at_one, search):
    flags = OTHER[search]
    theirs, mine = generate(stock, *flags), generate(at_one, *flags)
    nbest = flags[flags.index("--nbest") + 1] if "--nbest" in flags else 1
    assert len(lines(theirs, "H")) == SENTENCES * nbest
    assert lines(mine, "H") == lines(theirs, "H")
    assert_same(numbers(mine), numbers(theirs))


@pytest.mark.parametrize(
    "search", [pytest.param(name, marks=pytest.mark.nightly) if name == "top p" else name for name in PLAIN]
)
def test_scores_of_the_search_equal_those_of_whole_translations(generate, whole, ours, search):
    output = generate(ours, *PLAIN[search])
    assert_same(numbers(output), [scores for scores, _ in whole.of(output)])


@pytest.mark.parametrize("second", ("stock", pytest.param("second.pt", marks=pytest.mark.nightly)))
def test_an_ensemble_is_the_mean(generate, few, stock, ours, second):
    paths = ours, stock if second == "stock" else ours.with_name(second)
    output = generate(":".join(map(str, paths)), "--beam", 3, "--print-alignment", "soft")
    expected = Whole(few, *paths).of(output)
    assert_same(numbers(output), [scores for scores, _ in expected])
    assert_same(soft(output), [weights for _, weights in expected], tolerance=1e-5)


# ------------------------------------------------------------------------------------------ alignment


def soft(output: str) -> list[torch.Tensor]:
    """Attention (T, S) of each hypothesis."""
    rows = [[row.split(",") for row in text.split(" ")] for _, text in lines(output, "A")]
    return [torch.tensor([[float(x) for x in row] for row in matrix]) for matrix in rows]


def test_soft_alignment_equals_the_attention(generate, whole, ours):
    output = generate(ours, "--beam", 3, "--nbest", 2, "--print-alignment", "soft")
    expected = [weights for _, weights in whole.of(output)]
    assert_same(soft(output), expected, tolerance=1e-5)
    assert any((weights == 0).any() for weights in expected), "no weight is zero: α had nothing to do"


# ------------------------------------------------------------------------------- interactive, the hub


def test_interactive_on_a_pipe_equals_generate_on_a_corpus(generate, interactive, few, ours):
    text = (few / "text.de").read_text()
    expected = generate(ours, "--beam", 3)
    for flags in ([], ["--buffer-size", 7]):
        output = interactive(ours, text, "--beam", 3, *flags)
        assert lines(output, "H") == lines(expected, "H")
        assert_same(numbers(output), numbers(expected))
    assert lines(expected, "T") == list(enumerate((few / "spm.en").read_text().split("\n")[:-1]))


def hub(path: Path, few: Path, corpus: Path, names: str | None = None):
    """Load any checkpoint with our class: fairseq builds the model that the checkpoint names."""
    return AdaptivelySparseTransformerModel.from_pretrained(
        str(path.parent),
        names or path.name,
        str(few / "bin"),
        bpe="sentencepiece",
        sentencepiece_model=str(corpus / "spm.model"),
    )


def test_from_pretrained_translates(interactive, few, corpus, ours, monkeypatch):
    model = hub(ours, few, corpus)
    text = (few / "text.de").read_text().split("\n")[:5]
    for beam in (3, 1):  # in this order: nothing of the first beam may remain
        expected = [line for _, line in lines(interactive(ours, "\n".join(text), "--beam", beam), "D")]
        assert model.translate(text, beam=beam, max_len_b=8) == expected
        assert model.translate(text[1], beam=beam, max_len_b=8) == expected[1]
    several = hub(ours, few, corpus, f"{ours.name}:second.pt")
    pair = f"{ours}:{ours.with_name('second.pt')}"
    expected = [line for _, line in lines(interactive(pair, "\n".join(text), "--beam", 2), "D")]
    assert several.translate(text, beam=2, max_len_b=8) == expected

    told = []
    monkeypatch.setattr(hub_utils.logger, "info", lambda line: told.append(line[:2]))
    model.translate(text, beam=2, max_len_b=8, verbose=True, print_alignment="hard")
    assert [told.count(kind) for kind in ("S\t", "H\t", "P\t", "A\t")] == [5, 10, 10, 10]


# -------------------------------------------------------------------------------------- validate


def test_the_loss_of_validate_equals_the_scores_of_generate(generate, few, ours, monkeypatch):
    told = []
    monkeypatch.setattr(SimpleProgressBar, "print", lambda self, stats, **_: told.append(stats))
    subset = ["--valid-subset", "test", "--batch-size", 8]
    flags = ["--path", ours, "--task", "translation", "--no-progress-bar", *subset]
    here("validate", few / "bin", *PLUGIN, "--cpu", *flags)
    (stats,) = told
    scores = torch.cat(numbers(generate(ours, "--score-reference")))
    assert stats["nll_loss"] == pytest.approx(-scores.mean().item(), abs=1e-3)
