"""Translation of a test set by fairseq-generate, scored by sacrebleu."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from ..checkpoints import load_checkpoint, model_name, task_settings
from ..corpora import Corpus, normalising
from ..corpora.binarised import check_split, read_dictionary
from ..corpora.readers import read_lines
from ..errors import UserError
from ..io import make_folder, within, write_json, write_text
from . import scoring

PLUGIN = Path(__file__).resolve().parents[1]


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
        checkpoint: of this plugin's model or any other Transformer of fairseq's.
        corpus: a prepared corpus; the direction is the checkpoint's.
        test_set: public name of one of its test sets, or ``valid``.
        output: folder for fairseq-generate's output, the translations and the scores.
        beam: beam size.
        length_penalty: fairseq's ``--lenpen``.
        max_tokens: batch size in tokens.
        tokenize: sacrebleu's tokenizer for BLEU; None takes sacrebleu's own choice for the language.

    Returns:
        The scores with their sacrebleu signatures, as they are also written to ``TEST_SET.json``. References
        are sacrebleu's own where the corpus names a test set of its and sacrebleu has it on this machine.

    Raises:
        UserError: checkpoint and corpus do not fit, or fairseq-generate fails.
    """
    if test_set not in corpus.subsets:
        raise UserError(f"{corpus.name} has no test set {test_set!r}; it has {', '.join(corpus.test_sets)}")
    if os.pathsep in str(checkpoint):
        raise UserError(
            f"{checkpoint}: fairseq would take the {os.pathsep!r} for the end of a path; rename it"
        )
    state = load_checkpoint(checkpoint)
    source, target = translation_direction(state, checkpoint, corpus)
    lower_case = "lower_case" in normalising.steps_of(corpus.description, test_set)
    bleu = scoring.make_bleu(target, tokenize, lower_case)
    subset = corpus.subsets[test_set]
    check_split(corpus.bin, subset, corpus.languages)
    command = [str(corpus.bin), "--user-dir", str(PLUGIN), "--path", str(checkpoint), "--gen-subset", subset]
    command += ["--source-lang", source, "--target-lang", target, "--remove-bpe", "sentencepiece"]
    command += ["--beam", str(beam), "--lenpen", str(length_penalty), "--max-tokens", str(max_tokens)]
    # At its default of 8, fairseq leaves out the sentences that do not fill the last batch.
    command += ["--required-batch-size-multiple", "1"]
    generated = run_generate(command, subset, output)

    translations = read_translations(generated)
    if corpus.description.byte_fallback:
        translations = [scoring.join_bytes(line) for line in translations]
    own = scoring.own_references(corpus, subset, target)
    if len(translations) != len(own):
        raise UserError(
            f"{generated} has {len(translations)} translations for the {len(own)} sentences of "
            f"{test_set}; was {corpus.name} prepared anew meanwhile?"
        )
    hypotheses = translations
    if corpus.description.tokenised:
        path = within(output, output / f"{test_set}.tok.{target}")
        write_text(path, "".join(line + "\n" for line in translations))
        hypotheses = list(map(scoring.detokenizer(target), translations))
    path = within(output, output / f"{test_set}.{target}")
    write_text(path, "".join(line + "\n" for line in hypotheses))
    theirs = scoring.sacrebleu_references(corpus, test_set, source, target)
    name = corpus.description.sacrebleu.get(test_set)
    result = {
        "checkpoint": str(checkpoint),
        "model": model_name(state),
        "corpus": corpus.name,
        "test_set": test_set,
        "direction": f"{source}-{target}",
        "sentences": len(hypotheses),
        "beam": beam,
        "length_penalty": length_penalty,
        "command": shlex.join(["fairseq-generate", *command]),
        "references": f"sacrebleu's {name}" if theirs else str(corpus.reference(subset, target)),
        **scoring.scores(hypotheses, theirs or [own], bleu, lower_case),
        **_tokenized(corpus, subset, target, translations, own, lower_case),
    }
    write_json(within(output, output / f"{test_set}.json"), result)
    return result


def _tokenized(
    corpus: Corpus, subset: str, target: str, translations: list[str], references: list[str], lower_case: bool
) -> dict:
    """BLEU on the tokens of the release, or else on Moses'; nothing for a language that has neither."""
    if corpus.description.tokenised:
        references = list(read_lines(corpus.text(subset, target)))
        return scoring.tokenized_bleu(translations, references, lower_case, "the release")
    if target in scoring.UNSPACED:
        return {}
    both = (scoring.moses_tokens(lines, target) for lines in (translations, references))
    return scoring.tokenized_bleu(*both, lower_case, scoring.moses_name())


def translation_direction(state: dict, checkpoint: Path, corpus: Corpus) -> tuple[str, str]:
    """Source and target language a checkpoint was trained for; checks that ``corpus`` and it fit."""
    task = task_settings(state)
    direction = task.get("source_lang"), task.get("target_lang")
    if sorted(map(str, direction)) != sorted(corpus.languages):
        raise UserError(
            f"{checkpoint} translates {direction[0]}-{direction[1]}, "
            f"but the languages of {corpus.name} are {' and '.join(corpus.languages)}"
        )
    embeddings = state["model"].get("encoder.embed_tokens.weight")
    if embeddings is None:
        raise UserError(
            f"{checkpoint} is of a {model_name(state)}, which is no translation model of fairseq's"
        )
    symbols = len(read_dictionary(corpus.bin, direction[0]))
    if embeddings.dim() != 2 or embeddings.size(0) != symbols:
        raise UserError(
            f"{checkpoint} was trained with {len(embeddings)} symbols, but {corpus.name} is prepared with "
            f"{symbols}; prepare it with the --vocab-size of then"
        )
    return direction


def run_generate(arguments: list[str], subset: str, output: Path) -> Path:
    """Run fairseq-generate with its progress bar showing; returns the file it writes."""
    make_folder(output)
    log = within(output, output / f"generate-{subset}.log")
    generated = within(output, output / f"generate-{subset}.txt")
    # Its own warnings, about its age, would hide what matters.
    command = [sys.executable, "-W", "ignore::UserWarning", "-m", "fairseq_cli.generate"]
    command += [*arguments, "--results-path", str(output)]
    try:
        with log.open("w", encoding="utf-8") as file:
            status = subprocess.run(command, stdout=file).returncode
    except OSError as error:
        raise UserError(f"cannot write {log}: {error.strerror}") from None
    if status:
        raise UserError(f"fairseq-generate failed with exit status {status}; see above, and {log}")
    return generated


def read_translations(path: Path) -> list[str]:
    """The detokenised best translations (lines ``D-n``) of fairseq-generate's output, in corpus order."""
    translations = {}
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            if line.startswith("D-"):
                number, _, text = line.rstrip("\n").split("\t", 2)
                translations.setdefault(int(number[2:]), text)
    return [translations[number] for number in sorted(translations)]
