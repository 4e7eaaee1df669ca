"""Translation of splits by beam search, as fairseq-generate translates them, and their scores."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Literal

import numpy as np
from fairseq.data import data_utils
from fairseq.dataclass.configs import DatasetConfig
from tqdm import tqdm

from ..corpora import Corpus
from ..corpora.download import checksum
from ..errors import UserError
from ..files import write_json, write_text
from .loading import check_lengths, load_split, penalise_new_pieces, too_long
from .scoring import ScoredSplit
from .translator import BeamSearch, Translator

PENALTIES = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
_SEED = 1 + 1  # fairseq's for shuffling sentences of equal length: its --seed plus the epoch


def translate_split(
    search: BeamSearch, subset: str, left_out: Collection[int] = ()
) -> tuple[list[str], list[int]]:
    """Translate a split of the search's task with a progress bar.

    Batches are those of ``fairseq-generate --max-tokens N``, so that rounding and hence the hypotheses are
    identical.

    Args:
        search: with models in evaluation mode; heads may be masked.
        subset: fairseq's name of the split.
        left_out: numbers of sentences, from 0, that are not translated.

    Returns:
        The translations in corpus order, with pieces joined, and the numbers, from 0, of the sentences whose
        translation reached the limit of length.
    """
    dataset, size = load_split(search.task, subset), search.settings.max_tokens
    with data_utils.numpy_seed(_SEED):
        order = dataset.ordered_indices()
    order = order[~np.isin(order, list(left_out))]
    multiple = DatasetConfig.required_batch_size_multiple
    texts, cut = {}, []
    with tqdm(total=len(order), desc=subset, unit="sentence", disable=None) as progress:
        for numbers in dataset.batch_by_size(order, size, required_batch_size_multiple=multiple):
            sample = dataset.collater([dataset[i] for i in numbers])
            for number, (best, *_) in zip(sample["id"].tolist(), search(sample)):
                texts[number] = search.text(best["tokens"])
                cut += [number] if best["unfinished"] else []
            progress.update(len(numbers))
    return [texts[i] for i in sorted(texts)], sorted(cut)


class Evaluator:
    """Translates splits of a corpus with any fairseq Transformer, and scores the detokenised text.

    Args:
        tokenize: sacrebleu's tokenizer for BLEU; None for that of the language.
        skip_long: leave out sentences longer than the model's limit: they are not scored, and their lines are
            empty.
        options: those of :class:`~.translator.Translator`, such as ``beam``.

    Raises:
        UserError: checkpoint and corpus do not match.
    """

    def __init__(
        self,
        checkpoint: Path,
        corpus: Corpus,
        tokenize: str | None = None,
        skip_long: bool = False,
        **options,
    ):
        self.checkpoint, self.corpus, self.tokenize = checkpoint, corpus, tokenize
        self.skip_long, self.int8 = skip_long, options.get("int8")
        self.translator = Translator([checkpoint], corpus, **options)
        (self.model,), self.task = self.translator.models, self.translator.task
        self.about = {"checkpoint": str(checkpoint), "checkpoint_sha256": checksum(checkpoint, "sha256")}
        self.about |= {"model": self.translator.names[0], "corpus": corpus.name}

    def load(self, name: str) -> ScoredSplit:
        """Load a split, the public name of a test set or ``valid``.

        Raises UserError if it or the tokenizer is unknown, or a sentence that is not left out is longer than
        the model's limit.
        """
        split = ScoredSplit(self.corpus, name, self.translator.direction, self.tokenize)
        dataset = load_split(self.task, split.subset)
        if len(split.references[0]) != len(dataset):
            count = f"{len(split.references[0])} lines, but {split.name} has {len(dataset)} sentences"
            raise UserError(f"{split.references_name} has {count}")
        if self.skip_long:
            split.left_out = too_long(dataset, self.model)
        name = f"{split.name} ({self.corpus.folder / 'text' / split.subset}.*)"
        max_tokens = self.translator.search.settings.max_tokens
        check_lengths(dataset, name, max_tokens, self.model, left_out=split.left_out)
        return split

    def choose_penalty(self, penalty: float | Literal["valid"] | None) -> None:
        """Set the new-piece penalty; ``valid``: that of ``PENALTIES`` with the lowest TER on ``valid``."""
        if penalty == "valid":
            split, ter = self.load("valid"), {}
            for penalty in PENALTIES:
                penalise_new_pieces(self.model, penalty, self.checkpoint)
                texts, _ = translate_split(self.translator.search, split.subset, split.left_out)
                ter[penalty] = split.scores(split.lines(texts))["ter"]
            penalty = min(ter, key=ter.__getitem__)
            self.about["new_piece_penalties"] = {f"{tried:g}": score for tried, score in ter.items()}
        penalise_new_pieces(self.model, penalty, self.checkpoint)
        self.about["new_piece_penalty"] = penalty

    def evaluate(self, split: ScoredSplit, output: Path) -> dict:
        """Translate a split; write the translations and the scores, which are returned, to ``output``.

        The files are ``TEST_SET.LANGUAGE``, for a tokenised corpus also ``TEST_SET.tok.LANGUAGE``, and
        ``TEST_SET.json``. Lists of lines in the scores count from 1: ``unfinished_lines``, whose translations
        reached the limit of length; ``blank_lines``, sources without any piece, whose translation is empty;
        and ``left_out_lines``.
        """
        search, limit = self.translator.search, self.translator.limit
        texts, unfinished = translate_split(search, split.subset, split.left_out)
        lines = split.lines(texts)
        blank = np.flatnonzero(self.task.dataset(split.subset).src_sizes == 1).tolist()
        about = {
            **self.about,
            "test_set": split.name,
            "direction": "-".join(self.translator.direction),
            "sentences": len(lines),
            "left_out_lines": _from_one(split.left_out) if self.skip_long else None,
            "blank_lines": _from_one(blank),
            "beam": search.settings.beam,
            "length_penalty": search.settings.length_penalty,
            "max_len_a": limit.a,
            "max_len_b": limit.b,
            "unfinished_lines": _from_one(unfinished),
            "int8": self.int8 or None,
            "case": split.case,
            "references": split.references_name,
            **split.scores(lines),
        }
        scores = {key: value for key, value in about.items() if value is not None}
        path = output / f"{split.name}.json"
        # If the process ends before the new scores are written, no scores of other translations remain.
        path.unlink(missing_ok=True)
        if split.tokenised:
            write_text(output / f"{split.name}.tok.{split.target}", split.with_left_out(lines))
        write_text(output / f"{split.name}.{split.target}", split.with_left_out(split.natural(lines)))
        write_json(path, scores)
        return scores


def _from_one(numbers: list[int]) -> list[int]:
    """Lines counted from 1, of sentences counted from 0."""
    return [number + 1 for number in numbers]
