"""How text is restored and scored: detokenisation, and sacrebleu's metrics by language."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib.metadata import version

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric
from sacrebleu.tokenizers.tokenizer_ter import TercomTokenizer

from ..corpora import Corpus
from ..corpora.description import Description
from ..corpora.languages import UNSPACED_CHARACTER, Language, language, unspaced_script
from ..corpora.pieces import FROM_TRANSLATION, SPACE_MARK, case_of
from ..corpora.readers import read_lines
from ..errors import UserError, one_line
from ..files import shown
from ..post_editing.scoring import changes, folding, with_case_of

logger = logging.getLogger(__name__)
_LATIN = "A-Za-zÀ-ÖØ-öø-ɏḀ-ỿ\u0300-\u036f"  # with combining accents


def written(code: str, lines: Iterable[str] = ()) -> Language:
    """The language of a code; if the text of ``lines`` is in a script without spaces, with that script."""
    named = language(code)
    script = unspaced_script(lines) if named.spaced else None
    return named if script is None else replace(named, script=script)


def make_bleu(
    code: str,
    tokenize: str | None = None,
    lower_case: bool = False,
    lines: Iterable[str] = (),
    tokens: bool = False,
) -> BLEU:
    """sacrebleu's BLEU for text in the language of a code.

    ``tokenize`` names a tokenizer; None is that of the language as it is :func:`written` in ``lines``, some
    of the references. With ``tokens``, sacrebleu does not warn that text looks tokenised. Raises UserError if
    the tokenizer is unknown, or lacks something on this machine.
    """
    if tokenize is None:
        known = written(code, lines)
        tokenize = known.tokenizer
        if code and (known.script is None or known.script != language(code).script):
            script = known.script
            reason = f"is written without spaces ({script})" if script else "has a code that is not known"
            told = "warning: text of %r %s; BLEU's tokenizer is %s, see --tokenize"
            logger.warning(told, code, reason, tokenize)
    elif tokenize not in BLEU.TOKENIZERS:
        raise UserError(f"sacrebleu has no tokenizer {shown(tokenize)}; it has {', '.join(BLEU.TOKENIZERS)}")
    try:
        return BLEU(tokenize=tokenize, lowercase=lower_case, force=tokens)
    except (RuntimeError, ImportError, OSError) as error:  # of Japanese, Korean, and sentencepiece's models
        raise UserError(f"sacrebleu's tokenizer {tokenize} does not work here: {one_line(error)}") from None


def make_ter(code: str, lower_case: bool = False, lines: Iterable[str] = ()) -> TER:
    """sacrebleu's TER, with case unless ``lower_case``; text without spaces is split into characters."""
    if written(code, lines).spaced:
        return TER(case_sensitive=not lower_case)
    ter = TER(case_sensitive=not lower_case, normalized=True, asian_support=True)
    ter.tokenizer = CharacterTokenizer(normalized=True, asian_support=True, case_sensitive=not lower_case)
    ter.tokenizer_signature = ter.tokenizer.signature()
    return ter


class CharacterTokenizer(TercomTokenizer):
    """TER's tokenizer, with every character of a script without spaces as a token.

    sacrebleu's own ``asian_support`` does so for Chinese characters alone.
    """

    def __call__(self, sent: str) -> str:
        """The tokens, separated by spaces."""
        return super().__call__(UNSPACED_CHARACTER.sub(r" \g<0> ", sent))

    def signature(self) -> str:
        """The name in signatures of TER."""
        return "tercom-char"


def bleu_settings(signature: str) -> tuple[str | None, bool]:
    """The tokenizer in a signature of BLEU, without its version, and whether text is lower-cased."""
    fields = dict(field.partition(":")[::2] for field in signature.split("|"))
    tokenizer = fields.get("tok")
    if tokenizer is not None and tokenizer not in BLEU.TOKENIZERS:
        tokenizer = next((name for name in BLEU.TOKENIZERS if tokenizer.startswith(f"{name}-")), tokenizer)
    return tokenizer, fields.get("case") == "lc"


def join_pieces(pieces: str) -> str:
    """Join sentencepiece pieces separated by spaces, as fairseq does."""
    return pieces.replace(" ", "").replace(SPACE_MARK, " ").strip()


def natural_text(description: Description, code: str) -> Callable[[str], str]:
    """A function that makes natural text of a line, detokenising it if the corpus is tokenised.

    A BERT takes each Chinese character for a word, so the spaces between them are removed as well.
    """
    parted = description.tokenised or (description.wordpiece and not language(code).spaced)
    return detokenizer(code) if parted else lambda line: line


def detokenizer(code: str) -> Callable[[str], str]:
    """A function that detokenises tokens separated by spaces in a language."""
    if not language(code).spaced:  # not supported by Moses
        # Keep only spaces between Latin letters, also with accents, or digits.
        return lambda line: re.sub(rf"(?<![{_LATIN}0-9]) | (?![{_LATIN}0-9])", "", line)
    from sacremoses import MosesDetokenizer

    detokenize = MosesDetokenizer(language(code).subtag).detokenize
    return lambda line: detokenize(line.split())


class ScoredSplit:
    """Scores translations of a split.

    Attributes:
        name, subset: public name and fairseq's name of the split.
        target: target language.
        tokenised: whether the corpus is released as tokens, so that models output tokens.
        case: from :func:`~user_dir.corpora.pieces.case_of`.
        references: in sacrebleu's form; ``references_name`` is their file.
        left_out: numbers, from 0, of sentences that are neither translated nor scored.
    """

    def __init__(self, corpus: Corpus, name: str, direction: tuple[str, str], tokenize: str | None = None):
        self.target = direction[1]
        self.name, self.subset = corpus.split(name), corpus.subset(name)
        self.tokenised = corpus.description.tokenised
        self._corpus, self._natural = corpus, natural_text(corpus.description, self.target)
        self.case = case_of(corpus, self.name)
        self._lower_case = self.case == "ignored"
        file = corpus.reference(self.subset, self.target)
        self.references, self.references_name = [list(read_lines(file))], str(file)
        tokens = corpus.description.triplets  # their text may be tokenised, and is scored as it is
        self.bleu = make_bleu(self.target, tokenize, self._lower_case, self.references[0], tokens)
        self.left_out: list[int] = []

    def lines(self, hypotheses: list[str]) -> list[str]:
        """Convert hypotheses with joined pieces to lines of the corpus."""
        if self.case != FROM_TRANSLATION:
            return hypotheses
        fold = folding(self._corpus, self.target, self.name)
        translations = self._kept(read_lines(self._corpus.uncorrected(self.subset)))
        return [with_case_of(line, translation, fold) for line, translation in zip(hypotheses, translations)]

    def natural(self, lines: list[str]) -> list[str]:
        """Convert lines of the corpus to natural text, detokenising them if the corpus is tokenised."""
        return list(map(self._natural, lines))

    def _kept(self, lines: Iterable[str]) -> list[str]:
        """The lines of the split that are not left out."""
        return [line for number, line in enumerate(lines) if number not in self.left_out]

    def with_left_out(self, lines: list[str]) -> str:
        """A line per sentence of the split; those of sentences that are left out are empty."""
        rest = iter(lines)
        numbers = range(len(self.references[0]))
        return "".join(("" if number in self.left_out else next(rest)) + "\n" for number in numbers)

    def scores(self, lines: list[str]) -> dict:
        """BLEU, chrF, TER and tokenised BLEU, with signatures, of lines of the corpus.

        For a triplet corpus also the same scores of the machine translations as they were, ``uncorrected``,
        and how many sentences were changed for better or worse, ``changes``.
        """
        references, hypotheses = list(map(self._kept, self.references)), self.natural(lines)
        ter = make_ter(self.target, self._lower_case, self.references[0])
        metrics = {"bleu": self.bleu, "chrf": CHRF(lowercase=self._lower_case), "ter": ter}
        result = scores(metrics, hypotheses, references)
        if self._corpus.description.triplets:
            uncorrected = self.natural(self._kept(read_lines(self._corpus.uncorrected(self.subset))))
            before = scores(metrics, uncorrected, references)
            result["uncorrected"] = {name: before[name] for name in metrics}
            result["changes"] = changes(hypotheses, uncorrected, references, ter)
        if self.tokenised:
            release = self._kept(read_lines(self._corpus.text(self.subset, self.target)))
            tokens = "the release"
        elif written(self.target, self.references[0]).spaced:
            from sacremoses import MosesTokenizer

            moses = MosesTokenizer(language(self.target).subtag)
            lines, release = (
                [moses.tokenize(line, return_str=True, escape=False) for line in side]
                for side in (lines, references[0])
            )
            tokens = f"Moses (sacremoses {version('sacremoses')})"
        else:  # not supported by Moses
            return result
        # BLEU as it was reported before sacrebleu.
        metrics = {
            "tokenized_bleu": BLEU(tokenize="none", lowercase=self._lower_case, force=True),
            "tokenized_bleu_lowercased": BLEU(tokenize="none", lowercase=True, force=True),
        }
        return {**result, "tokenized_bleu_tokens": tokens, **scores(metrics, lines, [release])}


def scores(metrics: dict[str, Metric], hypotheses: list[str], references: list[list[str]]) -> dict:
    """The score and the signature of each metric; ``references`` are in sacrebleu's form."""
    result = {}
    for name, metric in metrics.items():
        result[name] = round(metric.corpus_score(hypotheses, references).score, 2)
        result[f"{name}_signature"] = str(metric.get_signature())
    return result
