"""Scores of translations against references: sacrebleu's BLEU and chrF, and BLEU on tokenised text."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import sacrebleu
from sacrebleu.dataset import DATASETS

from ..corpora import Corpus
from ..corpora.readers import read_lines
from ..corpora.readers.segments import unescape
from ..errors import UserError

logger = logging.getLogger(__name__)

UNSPACED = (
    "ja",
    "zh",
    "th",
    "lo",
    "km",
    "my",
)  # written without spaces: Moses has no tokens for them


def scores(
    hypotheses: list[str], references: list[list[str]], bleu: sacrebleu.metrics.BLEU, lower_case: bool
) -> dict:
    """BLEU and chrF on detokenised text, each with its signature; ``references`` as sacrebleu takes them."""
    chrf = sacrebleu.metrics.CHRF(lowercase=lower_case)
    return {
        "bleu": round(bleu.corpus_score(hypotheses, references).score, 2),
        "bleu_signature": str(bleu.get_signature()),
        "chrf": round(chrf.corpus_score(hypotheses, references).score, 2),
        "chrf_signature": str(chrf.get_signature()),
    }


def tokenized_bleu(hypotheses: list[str], references: list[str], lower_case: bool, tokens: str) -> dict:
    """BLEU of text in tokens parted by spaces, as papers gave it before sacrebleu; ``tokens``: whose.

    Beside it, what it is in lower case: many papers on Multi30k give that.
    """
    found = {"tokenized_bleu_tokens": tokens}
    for name, lower in (("tokenized_bleu", lower_case), ("tokenized_bleu_lowercased", True)):
        bleu = sacrebleu.metrics.BLEU(tokenize="none", lowercase=lower, force=True)
        found[name] = round(bleu.corpus_score(hypotheses, [references]).score, 2)
        found[f"{name}_signature"] = str(bleu.get_signature())
    return found


def moses_tokens(lines: list[str], language: str) -> list[str]:
    """The lines in Moses' tokens, parted by spaces."""
    from sacremoses import MosesTokenizer

    tokenize = MosesTokenizer(language).tokenize
    return [tokenize(line, return_str=True, escape=False) for line in lines]


def moses_name() -> str:
    """What the tokens of ``moses_tokens`` are called in a report."""
    return f"Moses (sacremoses {version('sacremoses')})"


def detokenizer(language: str) -> Callable[[str], str]:
    """From tokens parted by spaces to natural text."""
    if language in UNSPACED:
        # Between letters of another script a space is one of theirs.
        return lambda line: re.sub(r"(?<![A-Za-z0-9]) | (?![A-Za-z0-9])", "", line)
    from sacremoses import MosesDetokenizer

    detokenize = MosesDetokenizer(language).detokenize
    return lambda line: detokenize(line.split())


def join_bytes(line: str) -> str:
    """Runs of sentencepiece's byte pieces as the characters they spell; what spells none becomes U+FFFD."""

    def decode(found: re.Match) -> str:
        return bytes.fromhex(re.sub("<0x|>", "", found[0])).decode("utf-8", errors="replace")

    return re.sub(r"(?:<0x[0-9A-F]{2}>)+", decode, line)


def own_references(corpus: Corpus, subset: str, language: str) -> list[str]:
    """The untouched references that the corpus keeps beside its text."""
    return list(read_lines(corpus.reference(subset, language)))


def sacrebleu_references(corpus: Corpus, test_set: str, source: str, target: str) -> list[list[str]] | None:
    """sacrebleu's own references of a test set, if it has them on this machine; nothing is downloaded.

    None also where they are not those of our sentences, which is warned of.
    """
    name = corpus.description.sacrebleu.get(test_set)
    dataset = DATASETS.get(name)
    pair = f"{source}-{target}"
    if dataset is None or pair not in dataset.langpairs:
        return None
    fields = dataset.fieldnames(pair)
    paths = {field: Path(dataset._get_txt_file_path(pair, field)) for field in fields}
    if not all(path.is_file() for path in paths.values()):
        return None
    ours = read_lines(corpus.text(test_set, source))
    if [_plain(line) for line in ours] != [_plain(line) for line in read_lines(paths["src"])]:
        logger.warning(
            "warning: sacrebleu's %s %s has other sentences than %s; not scored against it",
            name,
            pair,
            test_set,
        )
        return None
    return [list(read_lines(path)) for field, path in paths.items() if field.startswith("ref")]


def _plain(line: str) -> str:
    # sacrebleu joins runs of spaces, and leaves entities to its tokeniser.
    return " ".join(unescape(line).split())


def make_bleu(language: str, tokenize: str | None = None, lower_case: bool = False) -> sacrebleu.metrics.BLEU:
    """sacrebleu's BLEU for text in ``language``; a tokenizer it does not have is refused."""
    if tokenize is not None and tokenize not in sacrebleu.metrics.BLEU.TOKENIZERS:
        known = ", ".join(sacrebleu.metrics.BLEU.TOKENIZERS)
        raise UserError(f"sacrebleu has no tokenizer {tokenize!r}; it has {known}")
    try:
        return sacrebleu.metrics.BLEU(tokenize=tokenize, trg_lang=language, lowercase=lower_case)
    except RuntimeError as error:  # that of Japanese and Korean is a package of its own
        raise UserError(
            f"sacrebleu cannot tokenize {language!r} here ({' '.join(str(error).split())}); "
            "install what it names, or give --tokenize char"
        ) from None
