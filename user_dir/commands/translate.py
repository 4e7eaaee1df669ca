"""Translate sentences: those given as arguments, those of a file, or those that come through a pipe.

Input and output are natural text, one sentence per line; an empty line stays an empty line. Through a pipe,
every translation is written as soon as it is ready.

  translate.py --model de-en "Ein Satz." --report heads.html    # a model that comes with the project
  translate.py --model exported/my-model < talk.de    # a model as a folder, which needs no prepared corpus
  translate.py --path checkpoints/toy/alpha_entmax/average.pt --input talk.de --output talk.en
  translate.py --path average.pt --nbest 3 < talk.de    # line, score and translation, separated by tabs
  translate.py --path a.pt --path b.pt "Guten Morgen."    # an ensemble
  translate.py --path average.pt --alignment "Guten Morgen."    # translation, tab, links such as 0-0 1-1
  translate.py --path post-editor.pt < src-tab-mt.tsv     # corrects translations: source, tab, translation

A line that cannot be translated, because it is not UTF-8 or longer than the model allows, ends the command
after the lines before it are written; with --skip-bad-lines it becomes an empty line.

--alignment prints links source-target between words, which are separated by white space and counted from 0.
It uses the head or layer that links best on validation text, or that of --alignment-head.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from .options import Parser, plain_name, positive, real

BLOCK = 1 << 18  # bytes of a file or pipe whose lines are sorted by length and translated together
OPTIONS = "data cpu int8 beam length_penalty max_len_a max_len_b max_tokens new_piece_penalty"


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(__doc__)
    parser.add("sentences", str, "sentences to translate", nargs="*", metavar="SENTENCE")
    what = "checkpoint to translate with; several make an ensemble"
    parser.add("--path", Path, what, action="append", default=[], metavar="CHECKPOINT")
    what = "folder of a model, or name of one that comes with the project, such as de-en; see data/models"
    parser.add("--model", Path, what, action="append", default=[], metavar="FOLDER|NAME")
    parser.add("--input", Path, "a sentence a line (default: stdin)")
    parser.add("--output", Path, "default: stdout")
    what = "corpus to preprocess for (default: the one that the checkpoint names)"
    parser.add("--corpus", plain_name, what)
    parser.add_data_option()
    parser.add_search_options(real(0, 1000))
    columns = "number of the line, score (mean log2 p of the tokens) and text, separated by tabs"
    parser.add("--nbest", positive, f"print the N best translations of each sentence: {columns}")
    parser.add_switch("--skip-bad-lines", "translate lines that cannot be translated to empty lines")
    parser.add_switch("--alignment", "also print links of words, after a tab")
    what = "by this LAYER (mean of heads) or LAYER:HEAD, from 0; with @input, by the step reading a word "
    what += "(default: the best on validation)"
    parser.add("--alignment-head", str, what, metavar="LAYER:HEAD")
    parser.add("--max-tokens", positive, "tokens in a batch (default: 4096)", default=4096)
    what = "also write the head report: what every head attends to on these sentences and translations"
    parser.add("--report", Path, what, metavar="FILE.html")
    parser.add_cpu_option()
    args = parser.parse_args(argv)
    if not args.path and not args.model:
        parser.error("give a model: --path CHECKPOINT, or --model NAME")
    if args.sentences and args.input:
        parser.error("give sentences or --input FILE, not both")
    args.alignment = args.alignment or args.alignment_head is not None
    if args.alignment and len(args.path) + len(args.model) > 1:
        parser.error("--alignment links words by the attention of one model")
    if args.report and (args.int8 or args.report.suffix != ".html" or args.report == args.output):
        parser.error("--report must end in .html, be another file than --output, and goes without --int8")
    return args


def main(argv=None) -> None:
    """Translate lines as they arrive, many together if many are there; then report on the heads."""
    args = parse_args(argv)

    from .. import tasks  # noqa: F401  installs the guards
    from ..errors import UserError
    from ..files import check_output
    from ..translation.loading import find_model
    from ..translation.translator import Translator

    logging.getLogger("fairseq").setLevel(logging.WARNING)
    models = [(path, None) for path in args.path] + list(map(find_model, args.model))
    checkpoints = [checkpoint for checkpoint, _ in models]
    corpus = args.corpus or next((corpus for _, corpus in models if corpus), None)
    chunks = chunks_of(args)
    for flag, path in (("--output", args.output), ("--report", args.report)):
        if path:
            check_output(path, [*checkpoints, args.input or Path("/dev/stdin")], flag)
    load = align = None
    if args.report or (args.alignment and not args.int8):
        from ..analysis.capture import load_model as load
    options = {option: getattr(args, option) for option in OPTIONS.split()}
    translator = Translator(checkpoints, corpus, load=load, nbest=args.nbest or 1, **options)
    if args.alignment:
        from ..analysis.translation_links import TranslationAligner, choice_for

        choice = choice_for(checkpoints[0], translator.corpus, args.alignment_head, cpu=args.cpu)
        print(f"aligned by {choice}", file=sys.stderr)
        align = TranslationAligner(translator.models[0], translator.task, choice, args.max_tokens)
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        try:
            with args.output.open("w", encoding="utf-8") as output:
                translated = translate(args, translator, chunks, output, align)
        except OSError as error:
            raise UserError(f"cannot write {args.output}: {error.strerror}") from None
    elif sys.__stdout__ is None:
        raise UserError("stdout is closed; give --output")
    else:
        sys.stdout.reconfigure(encoding="utf-8")  # data for another program, whatever the locale
        translated = translate(args, translator, chunks, sys.stdout, align)
    if args.report:
        from ..analysis.measuring import report_translations

        report_translations(translator, checkpoints, translated, args.report)
        print(f"head report: {args.report}", file=sys.stderr)


def chunks_of(args: argparse.Namespace) -> Iterator[list[bytes]]:
    """Lists of lines to translate together, in order."""
    from ..files import open_binary

    if args.sentences:
        return iter([[sentence.encode(errors="surrogateescape") for sentence in args.sentences]])
    if args.input:
        return arriving_lines(open_binary(args.input))
    if sys.stdin.isatty():
        print("reading sentences from the terminal, one a line; Ctrl-D ends", file=sys.stderr)
    return arriving_lines(sys.stdin.buffer)


def arriving_lines(file) -> Iterator[list[bytes]]:
    """The lines of a file, a pipe or a terminal as they arrive, several at once if they are there."""
    from ..errors import UserError
    from ..files import UNREADABLE

    rest = b""
    try:
        while block := file.read1(BLOCK):
            *lines, rest = (rest + block).split(b"\n")
            if lines:
                yield lines
    except UNREADABLE as error:
        raise UserError(f"cannot read the input: {error}") from None
    if rest:
        yield [rest]


def translate(args: argparse.Namespace, translator, chunks, output, align: Callable | None) -> list[tuple]:
    """Write the translations of lines, with the links of words that ``align`` returns, if it is given.

    Returns the sentences with their tokens and best hypotheses if ``args.report`` is set, else nothing.
    """
    from ..corpora.readers.lines import decoded
    from ..errors import UserError, first_few

    name = "arguments" if args.sentences else str(args.input or "stdin")
    translated, number, unfinished = [], 0, []
    for chunk in chunks:
        sentences, encoded, fault = [], [], None
        for line_number, line in enumerate(chunk, start=number + 1):
            try:
                sentence = decoded(line, line_number, name)
                tokens = translator.encode(sentence, line_number, name)
            except UserError as error:
                if not args.skip_bad_lines:
                    fault = error
                    break
                print(f"warning: {error}; it is left out", file=sys.stderr)
                sentence, tokens = "", translator.encode("")
            sentences.append(sentence)
            encoded.append(tokens)
        translations = translator.translate(sentences, encoded)
        links = align(sentences, encoded, translations) if align else [None] * len(sentences)
        for sentence, tokens, hypotheses, links_of_it in zip(sentences, encoded, translations, links):
            number += 1
            output.write(formatted(number, hypotheses, args.nbest, links_of_it))
            if hypotheses and hypotheses[0].unfinished:
                unfinished.append(number - 1)
            if hypotheses and args.report:
                translated.append((sentence, tokens, hypotheses[0]))
        output.flush()
        if fault is not None:
            raise fault
    if unfinished:
        told = f"{len(unfinished)} translations reached {translator.limit}, and may lack their end"
        print(f"warning: {told} ({first_few(unfinished)}); see --max-len-b", file=sys.stderr)
    return translated


def formatted(number: int, hypotheses: list, nbest: int | None, links: list[str] | None) -> str:
    """The lines of output for the sentence on line ``number``; ``links`` of each hypothesis, if wanted."""
    rows = [(f"{best.score:.4f}", best.text) for best in hypotheses] or [("0.0000", "")]
    rows = [[text] if nbest is None else [str(number), score, text] for score, text in rows]
    if links is not None:
        rows = [[*row, of_row] for row, of_row in zip(rows, links or [""])]
    return "".join("\t".join(row) + "\n" for row in rows)
