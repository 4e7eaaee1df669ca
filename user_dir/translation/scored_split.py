"""How a split of a corpus is scored: text restoration, references and metrics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import cached_property, partial
from importlib.metadata import version

from ..corpora import Corpus
from ..corpora.lost_case import FROM_TRANSLATION, case_of
from ..corpora.readers import read_made_lines
from ..errors import UserError
from ..metrics import make_bleu, make_ter, written
from . import scoring, text
from .casing import folding, with_case_of
from .comet import Comet
from .limits import translation_limit


class ScoredSplit:
    """Scores translations of a split.

    Attributes:
        name: public name of the split.
        subset: fairseq's name of the split.
        target: target language.
        tokenised: whether the corpus is released as tokens, so that models output tokens.
        case: from :func:`~user_dir.corpora.lost_case.case_of`.
        bleu: sacrebleu's BLEU with the tokenizer and case that the corpus specifies.
        references: in sacrebleu's form; sacrebleu's own references if the test set is on this machine.
        references_name: origin of the references.
        limit: default limit of the length of translations.

    Args:
        corpus: prepared corpus.
        name: name of the split, public or fairseq's.
        direction: source and target language.
        tokenize: sacrebleu's tokenizer for BLEU; None for that of the language.
    """

    def __init__(self, corpus: Corpus, name: str, direction: tuple[str, str], tokenize: str | None = None):
        source, self.target = direction
        self._source = source
        self.name, self.subset = corpus.split(name), corpus.subset(name)
        self.tokenised = corpus.description.tokenised
        self.limit = translation_limit({}, corpus)
        self._corpus = corpus
        self.case = case_of(corpus, self.name)
        self._lower_case = self.case == "ignored"
        file = corpus.reference(self.subset, self.target)
        self._own = list(read_made_lines(file))
        tokens = corpus.description.triplets  # whose corrections are scored as they are
        self.bleu = make_bleu(self.target, tokenize, self._lower_case, self._own, tokens)
        theirs = scoring.sacrebleu_references(corpus, self.name, source, self.target)
        self.references = theirs or [self._own]
        self.references_name = (
            f"sacrebleu's {corpus.description.sacrebleu[self.name]}" if theirs else str(file)
        )

    def lines(self, hypotheses: list[str], left_out: Collection[int] = ()) -> list[str]:
        """Convert hypotheses with joined pieces to lines of the corpus.

        They are of its first sentences, without those ``left_out``, whose numbers count from 0.
        """
        lines = text.corpus_lines(hypotheses, self._corpus.description)
        if self.case != FROM_TRANSLATION:
            return lines
        given = read_made_lines(self._corpus.uncorrected(self.subset))
        fold = folding(self._corpus, self.target, self.name)
        pairs = zip(lines, self.kept(given, left_out))
        return [with_case_of(line, translation, fold) for line, translation in pairs]

    def natural(self, lines: list[str]) -> list[str]:
        """Convert lines of the corpus to natural text, detokenising them if the corpus is tokenised."""
        return list(map(self._to_natural, lines))

    def comet(self, comet: Comet, lines: list[str], left_out: Collection[int] = ()) -> dict:
        """COMET by the first of the references, and the model's name; arguments as for :meth:`scores`."""
        description = self._corpus.description
        natural = text.natural_text(description, self._source)
        source = read_made_lines(self._corpus.text(self.subset, self._source))
        sources, references = (
            self.kept(side, left_out) for side in (map(natural, source), self.references[0])
        )
        found = comet.score(sources, self.natural(lines), references)
        return {"comet": round(found, 4), "comet_signature": comet.signature}

    @cached_property
    def _to_natural(self) -> Callable[[str], str]:
        return text.natural_text(self._corpus.description, self.target)

    def size(self, lines: list[str]) -> int:
        """The number of words of lines of the corpus, or of characters where no spaces part words."""
        words = [word for line in lines for word in line.split()]
        parted = self.tokenised or written(self.target, self._own).spaced
        return len(words) if parted else sum(map(len, words))

    def bleu_of(self, hypotheses: list[str], left_out: Collection[int] = ()) -> float:
        """BLEU of hypotheses with joined pieces for the first sentences, without those ``left_out``."""
        references = [self.kept(each, left_out)[: len(hypotheses)] for each in self.references]
        return self.bleu.corpus_score(self.natural(self.lines(hypotheses, left_out)), references).score

    @staticmethod
    def kept(lines: Iterable[str], left_out: Collection[int]) -> list[str]:
        """The lines whose numbers, from 0, are not ``left_out``."""
        return [line for number, line in enumerate(lines) if number not in left_out]

    def scores(self, lines: list[str], left_out: Collection[int] = ()) -> dict:
        """BLEU, chrF, TER and tokenised BLEU, with signatures.

        For a triplet corpus also the same scores of the machine translations as they were, ``uncorrected``,
        how many sentences were changed for better or worse, ``changes``, and the ``gain`` over doing nothing.

        Args:
            lines: lines of the corpus, one for each sentence of the split that is not left out.
            left_out: numbers of sentences, from 0, that are not scored.

        Raises:
            UserError: the number of lines differs from the number of sentences.
        """
        if len(lines) + len(left_out) != len(self._own):
            raise UserError(
                f"there are {len(lines)} translations for the {len(self._own)} sentences of {self.name}; "
                f"was {self._corpus.name} prepared again in the meantime?"
            )

        kept = partial(self.kept, left_out=left_out)
        references = list(map(kept, self.references))
        hypotheses, ter = self.natural(lines), make_ter(self.target, self._lower_case, self._own)
        found = scoring.scores(hypotheses, references, self.bleu, self._lower_case, ter)
        if self._corpus.description.triplets:
            given = self.natural(kept(read_made_lines(self._corpus.uncorrected(self.subset))))
            before = scoring.scores(given, references, self.bleu, self._lower_case, ter)
            found["uncorrected"] = {name: before[name] for name in ("bleu", "chrf", "ter")}
            found["changes"] = scoring.changes(hypotheses, given, references, ter)
            found["gain"] = scoring.gain(hypotheses, given, references, ter)
        if self.tokenised:
            release = kept(read_made_lines(self._corpus.text(self.subset, self.target)))
            found |= scoring.tokenized_bleu(lines, release, self._lower_case, "the release")
        elif written(self.target, self._own).spaced:  # others are not supported by Moses
            both = (text.moses_tokens(each, self.target) for each in (lines, kept(self._own)))
            moses = f"Moses (sacremoses {version('sacremoses')})"
            found |= scoring.tokenized_bleu(*both, self._lower_case, moses)
        return found
