"""Translation of arbitrary sentences: preprocessed as in the corpus, returned as natural text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..corpora import Corpus
from ..corpora.binarised import read_dictionary
from ..corpora.new_text import NewText
from ..errors import UserError
from .casing import folding, with_case_of
from .direction import corpus_of, translation_direction
from .limits import translation_limit
from .search import Search, batches_by_length, check_beam, log2_p
from .text import corpus_lines, join_pieces, natural_text

if TYPE_CHECKING:
    from .fairseq_search import FairseqSearch


@dataclass(frozen=True)
class Hypothesis:
    """One translation of a sentence.

    Its score is log₂ p divided by the number of tokens to the power of the length penalty, as in lines ``H-``
    of fairseq-generate; for an ensemble, p is the mean of the models' probabilities.
    """

    text: str  # natural text
    score: float
    tokens: np.ndarray  # int64 (T,), of the target dictionary, with ``</s>``
    unfinished: bool  # whether it is the best and reached the limit of length, or was given up without an end


class Translator:
    """Translates sentences in its ``direction``, source and target language.

    Args:
        search: with a model, or an ensemble, that has the vocabulary of ``corpus``.
        corpus: the prepared corpus that the models were trained on, which determines preprocessing.
        direction: source and target language.
        options: what ``search`` was made with; a sentence longer than its ``max_tokens`` is translated alone.
        nbest: number of hypotheses per sentence to return, at most ``options.beam``.

    Raises:
        UserError: the beam or ``nbest`` is out of range.

    Example::

        translator = open_translator([Path("checkpoints/toy/alpha_entmax/average.pt")])
        for (best,) in translator(["Wer sieht den kleinen Hund?", "Das Kind schläft."]):
            print(best.score, best.text)
    """

    def __init__(
        self,
        search: NativeSearch | FairseqSearch,
        corpus: Corpus,
        direction: tuple[str, str],
        options: Search,
        nbest: int = 1,
    ):
        self.dictionaries = tuple(read_dictionary(corpus.bin, language) for language in direction)
        check_beam(options.beam, len(self.dictionaries[1]))
        if not 1 <= nbest <= options.beam:
            raise UserError(f"--nbest {nbest}: give 1 to {options.beam}, the --beam")
        self.search, self.corpus, self.direction = search, corpus, direction
        self.limit = options.limit.within(search.max_positions[1])
        self._nbest, self._max_tokens = nbest, options.max_tokens
        self._new_text, self._new_target = (NewText(corpus, language) for language in direction)
        self._natural = natural_text(corpus.description, direction[1])
        self._fold = None
        if corpus.description.case is not None:
            self._fold = folding(corpus, direction[1], next(iter(corpus.test_sets), "valid"))

    def encode(self, sentences: list[str], first_line: int = 1, name: str = "") -> list[np.ndarray]:
        """The int64 (S,) tokens of each sentence, ending with ``</s>``; only ``</s>`` for an empty sentence.

        Args:
            sentences: natural text, or tokens if the corpus is released as tokens; for a post-editor the
                source sentence, a tab and its machine translation.
            first_line: line number of the first sentence, for error messages.
            name: name of their file, likewise.

        Raises:
            UserError: a sentence has more tokens than the models allow, or a post-editor's has no tab.
        """
        pieces = self._new_text.pieces(sentences, first_line, name)
        return self._encoded(pieces, 0, first_line, name)

    def encode_target(self, translation: str) -> np.ndarray:
        """The int64 (T,) tokens of a translation, for the decoder to read; errors as :meth:`encode`."""
        return self._encoded(self._new_target.pieces([translation]), 1)[0]

    def _encoded(
        self, pieces: Iterable[str], side: int, first_line: int = 1, name: str = ""
    ) -> list[np.ndarray]:
        encoded = [np.array(self.dictionaries[side].encode(each)) for each in pieces]
        limit = self.search.max_positions[side]
        for number, tokens in enumerate(encoded, start=first_line):
            if len(tokens) > limit:
                where = f"{name}, line {number}" if name else f"line {number}"
                raise UserError(
                    f"{where} has {len(tokens)} tokens, but the model allows {limit} at most; split it "
                    "into sentences, one a line"
                )
        return encoded

    def __call__(self, sentences: list[str], first_line: int = 1, name: str = "") -> list[list[Hypothesis]]:
        """The ``nbest`` best hypotheses of each sentence, best first; none for an empty sentence.

        Arguments and errors are those of :meth:`encode`.
        """
        encoded = self.encode(sentences, first_line, name)
        found: list[list[Hypothesis]] = [[] for _ in sentences]
        texts = [i for i, tokens in enumerate(encoded) if len(tokens) > 1]
        if not texts:
            return found
        lengths = [len(encoded[i]) for i in texts]
        for batch in batches_by_length(lengths, max(self._max_tokens, *lengths)):
            members = [texts[i] for i in batch]
            for member, hypotheses in zip(members, self.search([encoded[i] for i in members])):
                given = sentences[member]
                found[member] = [self._hypothesis(each, given) for each in hypotheses[: self._nbest]]
        return found

    def _hypothesis(self, found: dict, sentence: str) -> Hypothesis:
        tokens, unfinished = found["tokens"], found.get("unfinished", False)
        pieces = join_pieces(self.dictionaries[1].decode(tokens.tolist()))
        (line,) = corpus_lines([pieces], self.corpus.description)
        if self._fold is not None:
            line = with_case_of(line, sentence.partition("\t")[2], self._fold)
        return Hypothesis(self._natural(line), log2_p(found), tokens, unfinished)


def open_translator(
    checkpoints: Sequence[Path],
    corpus: Corpus | str | None = None,
    *,
    data: Path | None = None,
    cpu: bool = False,
    int8: bool = False,
    load: Callable | None = None,
    by_fairseq: bool = False,
    new_piece_penalty: float | None = None,
    max_len_a: float | None = None,
    max_len_b: int | None = None,
    nbest: int = 1,
    **options,
) -> Translator:
    """Load one or more checkpoints as a translator.

    fairseq and torch are imported only where :func:`~.native_search.native_search` cannot do without.

    Args:
        checkpoints: of fairseq translation models, trained on the same corpus in the same direction.
        corpus: a prepared corpus or its name; None for the one that the first checkpoint names.
        data: folder of the corpora, see :func:`~.direction.corpus_of`.
        cpu: use the CPU even if there is a GPU.
        int8: translate on the CPU with linear layers in 8-bit integers; not with ``load``.
        load: function ``load(checkpoint, corpus, cpu=cpu)`` that loads a model; None for the default.
        by_fairseq: search with models of fairseq in any case, which ``translator.search.models`` then are.
        new_piece_penalty: of post-editors, see :func:`~.loading.penalise_new_pieces`.
        max_len_a: limit of the length of translations, see :func:`~.limits.translation_limit`.
        max_len_b: see ``max_len_a``.
        nbest: of :class:`Translator`.
        options: ``beam``, ``length_penalty`` and ``max_tokens`` of :class:`~.search.Search`.

    Raises:
        UserError: a checkpoint or the corpus is missing or corrupt, or they do not match.
    """
    limits, direction, state = [], None, {}
    for checkpoint in checkpoints:
        del state
        state = None
        if state is None:
            from ..checkpoints import load_checkpoint

            state = load_checkpoint(checkpoint)
        if not isinstance(corpus, Corpus):
            corpus = corpus_of(state, checkpoint, corpus, data)
        its_direction = translation_direction(state, checkpoint, corpus)
        limits.append(translation_limit(state, corpus, max_len_a, max_len_b))
        direction = direction or its_direction
        if its_direction != direction:
            raise UserError(
                f"{checkpoint} translates {'-'.join(its_direction)} and {checkpoints[0]} "
                f"{'-'.join(direction)}; an ensemble needs models of one direction"
            )
    search = Search(limit=max(limits, key=lambda each: each.b), **options)
    found = None
    if not by_fairseq and new_piece_penalty is None and len(checkpoints) == 1:
        found = None
    del state
    if found is None:
        from .fairseq_search import fairseq_search

        how = {"cpu": cpu, "int8": int8, "new_piece_penalty": new_piece_penalty, "load": load}
        found = fairseq_search(checkpoints, corpus, direction, search, **how)
    return Translator(found, corpus, direction, search, nbest)
