"""How a split of a corpus is scored: text restoration, references and metrics."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ..corpora import Corpus, normalising
from ..corpora.readers import read_made_lines
from ..errors import UserError
from ..metrics import make_bleu, make_ter, written
from . import restoring, scoring
from .limits import translation_limit


class ScoredSplit:
    """Scores translations of a split.

    Attributes:
        name: public name of the split.
        subset: fairseq's name of the split.
        target: target language.
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
        self.name, self.subset = corpus.split(name), corpus.subset(name)
        self._corpus = corpus
        self._lower_case = "lower_case" in normalising.steps_of(corpus.description, self.name)
        self.limit = translation_limit({}, corpus)
        self._natural: Callable[[str], str] | None = None
        self._own = scoring.own_references(corpus, self.subset, self.target)
        self.bleu = make_bleu(self.target, tokenize, self._lower_case, self._own)
        theirs = scoring.sacrebleu_references(corpus, self.name, source, self.target)
        self.references = theirs or [self._own]
        dataset = corpus.description.sacrebleu.get(self.name)
        file = corpus.reference(self.subset, self.target)
        self.references_name = f"sacrebleu's {dataset}" if theirs else str(file)

    @property
    def tokenised(self) -> bool:
        """Whether the corpus is released as tokens, so that models output tokens."""
        return self._corpus.description.tokenised

    def lines(self, hypotheses: list[str]) -> list[str]:
        """Convert hypotheses with joined pieces to lines of the corpus; see :func:`text.corpus_lines`."""
        return restoring.corpus_lines(hypotheses, self._corpus.description)

    def natural(self, lines: list[str]) -> list[str]:
        """Convert lines of the corpus to natural text, detokenising them if the corpus is tokenised."""
        if self._natural is None:
            self._natural = restoring.natural_text(self._corpus.description, self.target)
        return list(map(self._natural, lines))

    def bleu_of(self, hypotheses: list[str]) -> float:
        """BLEU of hypotheses with joined pieces for the first ``len(hypotheses)`` sentences."""
        count = len(hypotheses)
        references = [each[:count] for each in self.references]
        return self.bleu.corpus_score(self.natural(self.lines(hypotheses)), references).score

    def scores(self, lines: list[str], left_out: Collection[int] = ()) -> dict:
        """BLEU, chrF, TER and tokenised BLEU, with signatures.

        For a triplet corpus also the same scores of the machine translations as they were, ``uncorrected``,
        and how many sentences were changed for better or worse, ``changes``.

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
        kept = [number for number in range(len(self._own)) if number not in left_out]
        references = [[each[number] for number in kept] for each in self.references]
        hypotheses, ter = self.natural(lines), make_ter(self.target, self._lower_case, self._own)
        found = scoring.scores(hypotheses, references, self.bleu, self._lower_case, ter)
        if self._corpus.description.triplets:
            given = list(read_made_lines(self._corpus.uncorrected(self.subset)))
            given = self.natural([given[number] for number in kept])
            before = scoring.scores(given, references, self.bleu, self._lower_case, ter)
            found["uncorrected"] = {name: before[name] for name in ("bleu", "chrf", "ter")}
            found["changes"] = scoring.changes(hypotheses, given, references, ter)
        return {**found, **self._tokenized(lines, kept)}

    def _tokenized(self, lines: list[str], kept: list[int]) -> dict:
        """BLEU on the tokens of the release, or else Moses tokens; empty for unsupported languages."""
        if self.tokenised:
            release = list(read_made_lines(self._corpus.text(self.subset, self.target)))
            references = [release[number] for number in kept]
            return scoring.tokenized_bleu(lines, references, self._lower_case, "the release")
        if not written(self.target, self._own).spaced:
            return {}
        own = [self._own[number] for number in kept]
        both = (restoring.moses_tokens(each, self.target) for each in (lines, own))
        return scoring.tokenized_bleu(*both, self._lower_case, restoring.moses_name())
