"""Translation of test sets by beam search, scored by sacrebleu."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..checkpoints import load_checkpoint, model_name
from ..config import PLUGIN
from ..corpora import Corpus
from ..corpora.binarised import read_dictionary
from ..errors import UserError
from ..io import make_folder, within, write_json, write_text
from .loading import load_model, load_split, translation_direction
from .scored_split import ScoredSplit
from .search import check_beam, translate_split


@dataclass(frozen=True)
class Evaluation:
    """The scores of a test set, as ``TEST_SET.json`` has them, and how long the beam search took."""

    scores: dict
    seconds: float


def evaluate(
    checkpoint: Path,
    corpus: Corpus,
    test_sets: Iterable[str],
    output: Path,
    *,
    beam: int = 5,
    length_penalty: float = 1.0,
    max_tokens: int = 4096,
    tokenize: str | None = None,
) -> Iterator[Evaluation]:
    """Translate test sets one by one, and score each on detokenised text.

    Writes into ``output`` for each the translations (``TEST_SET.LANGUAGE``; of a corpus in tokens also
    ``TEST_SET.tok.LANGUAGE``), the scores (``TEST_SET.json``), and ``generate-SUBSET.txt``, which has every
    sentence with its log-probabilities in the format of fairseq-generate.

    Args:
        checkpoint: of this plugin's model or any other Transformer of fairseq's.
        corpus: a prepared corpus; the direction is the checkpoint's.
        test_sets: public names of its test sets, or ``valid``.
        output: folder.
        beam: beam size.
        length_penalty: fairseq's ``--lenpen``.
        max_tokens: batch size in tokens.
        tokenize: sacrebleu's tokenizer for BLEU; None takes sacrebleu's own choice for the language.

    Yields:
        The scores with their sacrebleu signatures. References are sacrebleu's own where the corpus names a
        test set of its and sacrebleu has it on this machine. ``command`` is the fairseq-generate that gives
        the same translations.

    Raises:
        UserError: checkpoint and corpus do not fit; there is no such test set, or no such tokenizer.
    """
    if os.pathsep in str(checkpoint):
        raise UserError(
            f"{checkpoint}: fairseq would take the {os.pathsep!r} for the end of a path; rename it"
        )
    state = load_checkpoint(checkpoint)
    name, direction = model_name(state), translation_direction(state, checkpoint, corpus)
    del state
    check_beam(beam, len(read_dictionary(corpus.bin, direction[1])))
    splits = [_split(corpus, test_set, direction, tokenize) for test_set in test_sets]
    model, task = load_model(checkpoint, corpus, direction)
    for split in splits:
        load_split(task, split.subset)  # so that a broken one is noticed before any is translated
    make_folder(output)
    for split in splits:
        found = translate_split(
            model, task, split.subset, beam=beam, length_penalty=length_penalty, max_tokens=max_tokens
        )
        write_text(within(output, output / f"generate-{split.subset}.txt"), found.as_fairseq_writes_it())
        lines = split.lines(found.texts)
        scores = split.scores(lines)
        if split.tokenised:
            write_text(within(output, output / f"{split.name}.tok.{split.target}"), _joined(lines))
        write_text(within(output, output / f"{split.name}.{split.target}"), _joined(split.natural(lines)))
        command = ["fairseq-generate", str(corpus.bin), "--user-dir", str(PLUGIN), "--path", str(checkpoint)]
        command += ["--gen-subset", split.subset, "--source-lang", direction[0]]
        command += ["--target-lang", direction[1], "--remove-bpe", "sentencepiece", "--beam", str(beam)]
        command += ["--lenpen", str(length_penalty), "--max-tokens", str(max_tokens)]
        # At its default of 8, fairseq leaves out the sentences that do not fill the last batch.
        command += ["--required-batch-size-multiple", "1"]
        scores = {
            "checkpoint": str(checkpoint),
            "model": name,
            "corpus": corpus.name,
            "test_set": split.name,
            "direction": "-".join(direction),
            "sentences": len(lines),
            "beam": beam,
            "length_penalty": length_penalty,
            "command": shlex.join(command),
            "references": split.references_name,
            **scores,
        }
        write_json(within(output, output / f"{split.name}.json"), scores)
        yield Evaluation(scores, found.seconds)


def _split(corpus: Corpus, test_set: str, direction: tuple[str, str], tokenize: str | None) -> ScoredSplit:
    if test_set not in corpus.subsets:
        raise UserError(f"{corpus.name} has no test set {test_set!r}; it has {', '.join(corpus.test_sets)}")
    return ScoredSplit(corpus, test_set, direction, tokenize)


def _joined(lines: list[str]) -> str:
    return "".join(line + "\n" for line in lines)
