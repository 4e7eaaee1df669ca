"""Translation of a test set by fairseq-generate, scored by sacrebleu."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import sacrebleu

from .checkpoints import load_checkpoint, model_name, task_settings
from .corpora import Corpus
from .errors import UserError
from .files import write_text

PLUGIN = Path(__file__).resolve().parent


def evaluate(
    checkpoint: Path,
    corpus: Corpus,
    test_set: str,
    output: Path,
    *,
    beam: int = 5,
    length_penalty: float = 1.0,
    max_tokens: int = 4096,
    tokenize: str | None = None,
) -> dict:
    """Translate ``test_set`` and score it on detokenised text.

    Args:
        checkpoint: of any model that fairseq or this plugin can build.
        corpus: a prepared corpus; the direction is the checkpoint's.
        test_set: public name of one of its test sets.
        output: folder for fairseq-generate's output, the translations and the scores.
        beam: beam size.
        length_penalty: fairseq's ``--lenpen``.
        max_tokens: batch size in tokens.
        tokenize: sacrebleu's tokenizer for BLEU; None takes sacrebleu's own choice for the language.

    Returns:
        The scores with their sacrebleu signatures, as they are also written to ``TEST_SET.json``.

    Raises:
        UserError: checkpoint and corpus do not fit, or fairseq-generate fails.
    """
    if test_set not in corpus.test_sets:
        raise UserError(f"{corpus.name} has no test set {test_set!r}; it has {', '.join(corpus.test_sets)}")
    source, target = translation_direction(checkpoint, corpus)
    subset = corpus.test_sets[test_set]
    output.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "fairseq_cli.generate", str(corpus.bin)]
    command += ["--user-dir", str(PLUGIN), "--path", str(checkpoint), "--gen-subset", subset]
    command += ["--source-lang", source, "--target-lang", target, "--remove-bpe", "sentencepiece"]
    command += ["--beam", str(beam), "--lenpen", str(length_penalty), "--max-tokens", str(max_tokens)]
    # At its default of 8, fairseq leaves out the sentences that do not fill the last batch.
    command += ["--required-batch-size-multiple", "1"]
    generated = run_generate(command, subset, output)

    hypotheses = read_translations(generated)
    references = corpus.text(subset, target).read_text(encoding="utf-8").rstrip("\n").split("\n")
    if len(hypotheses) != len(references):
        raise UserError(
            f"{generated} has {len(hypotheses)} translations for the {len(references)} sentences of "
            f"{test_set}; prepare the corpus anew, or lower --max-tokens"
        )
    write_text(output / f"{test_set}.{target}", "".join(line + "\n" for line in hypotheses))
    result = {
        "checkpoint": str(checkpoint),
        "model": model_name(load_checkpoint(checkpoint)),
        "corpus": corpus.name,
        "test_set": test_set,
        "direction": f"{source}-{target}",
        "sentences": len(references),
        "beam": beam,
        "length_penalty": length_penalty,
        "command": "fairseq-generate " + " ".join(command[3:]),
        **score(hypotheses, references, target, tokenize),
    }
    write_text(output / f"{test_set}.json", json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    return result


def translation_direction(checkpoint: Path, corpus: Corpus) -> tuple[str, str]:
    """Source and target language a checkpoint was trained for; checks that ``corpus`` and it fit."""
    state = load_checkpoint(checkpoint)
    task = task_settings(state)
    direction = task.get("source_lang"), task.get("target_lang")
    if set(direction) != set(corpus.languages):
        raise UserError(
            f"{checkpoint} translates {direction[0]}-{direction[1]}, "
            f"but the languages of {corpus.name} are {' and '.join(corpus.languages)}"
        )
    embeddings = state["model"].get("encoder.embed_tokens.weight")
    if embeddings is None:
        raise UserError(
            f"{checkpoint} is of a {model_name(state)}, which is no translation model of fairseq's"
        )
    # fairseq adds four symbols of its own to those in the file
    symbols = sum(1 for _ in (corpus.bin / f"dict.{direction[0]}.txt").open(encoding="utf-8")) + 4
    if embeddings.size(0) != symbols:
        raise UserError(
            f"{checkpoint} was trained with {embeddings.size(0)} symbols, but {corpus.name} is prepared with "
            f"{symbols}; prepare it with the --vocab-size of then"
        )
    return direction


def run_generate(command: list[str], subset: str, output: Path) -> Path:
    """Run fairseq-generate with its progress bar showing; returns the file it writes."""
    log = output / f"generate-{subset}.log"
    with log.open("w", encoding="utf-8") as file:
        status = subprocess.run([*command, "--results-path", str(output)], stdout=file).returncode
    if status:
        raise UserError(
            f"fairseq-generate failed with exit status {status}; what it said is above and in {log}"
        )
    return output / f"generate-{subset}.txt"


def read_translations(path: Path) -> list[str]:
    """The detokenised best translations (lines ``D-n``) of fairseq-generate's output, in corpus order."""
    translations = {}
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            if line.startswith("D-"):
                number, _, text = line.rstrip("\n").split("\t", 2)
                translations.setdefault(int(number[2:]), text)
    return [translations[number] for number in sorted(translations)]


def score(hypotheses: list[str], references: list[str], language: str, tokenize: str | None = None) -> dict:
    """BLEU and chrF of sacrebleu on detokenised text, with their signatures."""
    bleu = sacrebleu.metrics.BLEU(tokenize=tokenize, trg_lang=language)
    chrf = sacrebleu.metrics.CHRF()
    return {
        "bleu": round(bleu.corpus_score(hypotheses, [references]).score, 2),
        "bleu_signature": str(bleu.get_signature()),
        "chrf": round(chrf.corpus_score(hypotheses, [references]).score, 2),
        "chrf_signature": str(chrf.get_signature()),
    }
