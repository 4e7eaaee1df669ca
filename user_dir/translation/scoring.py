"""Scores and references: sacrebleu's BLEU, chrF and TER, and tokenised BLEU."""

from __future__ import annotations

import logging
from pathlib import Path

from sacrebleu.dataset import DATASETS
from sacrebleu.metrics import BLEU, CHRF, TER

from ..corpora import Corpus
from ..corpora.readers import read_lines, read_made_lines
from ..corpora.readers.references import resolve

logger = logging.getLogger(__name__)


def scores(
    hypotheses: list[str], references: list[list[str]], bleu: BLEU, lower_case: bool, ter: TER
) -> dict:
    """BLEU, chrF and TER on detokenised text, with signatures; ``references`` are in sacrebleu's form."""
    found = {}
    for name, metric in {"bleu": bleu, "chrf": CHRF(lowercase=lower_case), "ter": ter}.items():
        found[name] = round(metric.corpus_score(hypotheses, references).score, 2)
        found[f"{name}_signature"] = str(metric.get_signature())
    return found


def changes(
    hypotheses: list[str], uncorrected: list[str], references: list[list[str]], ter: TER
) -> dict[str, int]:
    """What post-editing did to each machine translation, judged by the number of edits that TER counts.

    Returns:
        The number of sentences that were ``left_alone``, ``improved`` (fewer edits), ``worsened`` (more), or
        changed with ``no_effect``.
    """
    counts = dict.fromkeys(("left_alone", "improved", "worsened", "no_effect"), 0)
    before, after = (ter._extract_corpus_statistics(each, references) for each in (uncorrected, hypotheses))
    for old, new, (edits_before, _), (edits_after, _) in zip(uncorrected, hypotheses, before, after):
        if old.split() == new.split():
            counts["left_alone"] += 1
        elif edits_after == edits_before:
            counts["no_effect"] += 1
        else:
            counts["improved" if edits_after < edits_before else "worsened"] += 1
    return counts


def gain(hypotheses: list[str], uncorrected: list[str], references: list[list[str]], ter: TER) -> dict:
    """What post-editing gained over doing nothing, and by how many edits, as TER counts them.

    Returns:
        ``ter``, the points by which TER fell; ``edits`` from the machine translations to the corrections;
        and ``per_edit``, by how many fewer edits each of them left to be made: 1 if all were right, negative
        if more of them did harm, None if there are none.
    """

    def total(lines: list[str], others: list[list[str]]) -> int:
        return sum(int(edits) for edits, _ in ter._extract_corpus_statistics(lines, others))

    before, after = (ter.corpus_score(each, references).score for each in (uncorrected, hypotheses))
    edits = total(hypotheses, [uncorrected])
    saved = total(uncorrected, references) - total(hypotheses, references)
    return {
        "ter": round(before - after, 2),
        "edits": edits,
        "per_edit": round(saved / edits, 3) if edits else None,
    }


def tokenized_bleu(hypotheses: list[str], references: list[str], lower_case: bool, tokens: str) -> dict:
    """BLEU on tokens separated by spaces, as reported before sacrebleu; ``tokens`` names the tokenisation.

    Includes the score on lower-cased text, which many papers on Multi30k report.
    """
    found = {"tokenized_bleu_tokens": tokens}
    for name, lower in (("tokenized_bleu", lower_case), ("tokenized_bleu_lowercased", True)):
        bleu = BLEU(tokenize="none", lowercase=lower, force=True)
        found[name] = round(bleu.corpus_score(hypotheses, [references]).score, 2)
        found[f"{name}_signature"] = str(bleu.get_signature())
    return found


def sacrebleu_files(test_set: str | None, pair: str) -> dict[str, Path]:
    """Where sacrebleu keeps a test set, by field (``src``, ``ref``…); empty if it has none for this pair."""
    dataset = DATASETS.get(test_set)
    if dataset is None or pair not in dataset.langpairs:
        return {}
    return {field: Path(dataset._get_txt_file_path(pair, field)) for field in dataset.fieldnames(pair)}


def sacrebleu_references(corpus: Corpus, test_set: str, source: str, target: str) -> list[list[str]] | None:
    """sacrebleu's references of a test set, if they are on this machine; downloads nothing.

    Returns None, with a warning, if they are not references of our sentences.
    """
    name, pair = corpus.description.sacrebleu.get(test_set), f"{source}-{target}"
    paths = sacrebleu_files(name, pair)
    if not paths or not all(path.is_file() for path in paths.values()):
        return None
    ours = read_made_lines(corpus.text(test_set, source))
    if [_plain(line) for line in ours] != [_plain(line) for line in read_lines(paths["src"])]:
        logger.warning(
            "warning: sacrebleu's %s %s has different sentences from %s; not used as reference",
            name,
            pair,
            test_set,
        )
        return None
    return [list(read_lines(path)) for field, path in paths.items() if field.startswith("ref")]


def _plain(line: str) -> str:
    # sacrebleu joins runs of spaces, and leaves entities to its tokenizer.
    return " ".join(resolve(line, "a line").split())
