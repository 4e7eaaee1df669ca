"""Translate sentences: those given as arguments, those of a file, or those that come through a pipe.

A sentence a line, natural text in, natural text out; an empty line stays an empty line. Through a pipe, every
line is answered as soon as it is translated. The corpus, whose preprocessing the model was trained with, is
the one that the checkpoint names, unless --corpus names another.

  translate.py --path checkpoints/toy/alpha_entmax/average.pt "Wer sieht den kleinen Hund?"
  translate.py --path average.pt --input talk.de --output talk.en
  translate.py --path average.pt --nbest 3 < talk.de      # line, score and translation, separated by tabs
  translate.py --path a.pt --path b.pt "Guten Morgen."    # an ensemble
  translate.py --path average.pt --report heads.html "Guten Morgen."
  translate.py --path post-editor.pt < src-tab-mt.tsv     # corrects translations: source, tab, translation
  translate.py --path release.tar < talk.de     # an archive by release.py, which needs no prepared corpus

--report also draws what every head attends to on these sentences, while the decoder reads the translations.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import tempfile
from pathlib import Path

from ..command_line import file_path, length_penalty, path_of, plain_name, positive
from .options import add_length_options, add_penalty_option

CHUNK = 2000  # lines of a file that are sorted by length and translated together


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sentences", nargs="*", metavar="SENTENCE", help="sentences to translate")
    parser.add_argument(
        "--path",
        type=file_path,
        action="append",
        required=True,
        metavar="CHECKPOINT",
        help="checkpoint or release archive to translate with; several make an ensemble",
    )
    parser.add_argument("--input", type=file_path, metavar="FILE", help="a sentence a line (default: stdin)")
    parser.add_argument("--output", type=file_path, metavar="FILE", help="default: stdout")
    parser.add_argument("--corpus", type=plain_name, help="default: the one that the checkpoint names")
    parser.add_argument("--data", type=path_of, metavar="DIR", help="folder of the corpora (default: data/)")
    parser.add_argument("--beam", type=positive, default=5, metavar="N", help="beam size (default: 5)")
    parser.add_argument(
        "--lenpen",
        type=length_penalty,
        default=1.0,
        metavar="X",
        help="length penalty; above 1 favours longer translations (default: 1)",
    )
    parser.add_argument(
        "--nbest",
        type=positive,
        metavar="N",
        help="print the N best translations of each sentence: number of the line, score (mean log2 p of the "
        "tokens) and text, separated by tabs",
    )
    add_length_options(parser)
    add_penalty_option(parser)
    parser.add_argument(
        "--max-tokens", type=positive, default=4096, metavar="N", help="tokens in a batch (default: 4096)"
    )
    parser.add_argument("--report", type=file_path, metavar="FILE.html", help="also write the head report")
    parser.add_argument("--int8", action="store_true", help="translate with 8-bit integers, on the CPU")
    parser.add_argument("--cpu", action="store_true", help="even if there is a GPU")
    args = parser.parse_args(argv)
    if args.sentences and args.input:
        parser.error("give sentences or --input FILE, not both")
    if args.report and args.int8:
        parser.error("--report draws what the exact model attends to; leave out --int8")
    if args.report and args.report.suffix != ".html":
        parser.error(f"--report {args.report} must end in .html")
    return args


def chunks(args: argparse.Namespace):
    """Lists of sentences to translate together, in order; and what error messages call their source."""
    from ..corpora.readers import read_lines
    from ..corpora.worker_pool import batches
    from ..errors import UserError
    from ..translation.line_stream import available_lines

    if args.sentences:
        return [args.sentences], "arguments"
    if args.input:
        if not args.input.is_file():
            raise UserError(f"no file {args.input}")
        return batches(read_lines(args.input), CHUNK), str(args.input)
    if sys.stdin.isatty():
        print("reading sentences from the terminal, one a line; Ctrl-D ends", file=sys.stderr)
    return available_lines(sys.stdin.fileno(), "stdin", CHUNK), "stdin"


def formatted(number: int, hypotheses: list, nbest: int | None) -> str:
    """The lines of output for the sentence on line ``number``."""
    if nbest is None:
        return (hypotheses[0].text if hypotheses else "") + "\n"
    if not hypotheses:
        return f"{number}\t0.0000\t\n"
    return "".join(f"{number}\t{each.score:.4f}\t{each.text}\n" for each in hypotheses)


def write_report(
    args: argparse.Namespace, checkpoints: list[Path], translator, lines: list[str], found: list[list]
) -> None:
    """Draw the heads of each model on the sentences and their best translations."""
    from ..analysis.report import write_report
    from ..analysis.result_files import model_names
    from ..analysis.translated import analyse_translations

    kept = [(line, best) for line, best in zip(lines, found) if best]
    texts = [line for line, _ in kept]
    sources, targets = translator.encode(texts), [best[0].tokens for _, best in kept]
    with tempfile.TemporaryDirectory() as folder:
        models = [
            analyse_translations(
                name,
                path,
                translator.corpus,
                model,
                translator.task,
                sources,
                targets,
                texts,
                Path(folder) / f"{i}.npz",
            )
            for i, (name, path, model) in enumerate(
                zip(model_names(args.path), checkpoints, translator.models)
            )
        ]
        for model, path in zip(models, args.path):
            model.statistics["checkpoint"] = str(path)  # of an archive it is a temporary file
        write_report(models, args.report, len(texts))
    print(f"head report: {args.report}", file=sys.stderr)


def main(argv=None) -> None:
    """Translate line by line, or many lines together where many are there; then report on the heads."""
    args = parse_args(argv)

    from .. import models  # noqa: F401  registers the model
    from ..analysis.capture import load_model
    from ..errors import UserError
    from ..guards.long_sentences import first_few
    from ..io import atomic_write, check_output, same_file
    from ..releases.opened import opened
    from ..translation.translator import open_translator

    logging.getLogger("fairseq").setLevel(logging.WARNING)
    given = [*args.path]
    if not args.sentences:
        given.append(args.input or Path("/dev/stdin"))  # which may be a file, too: < talk.de
    for flag, path in (("--output", args.output), ("--report", args.report)):
        if path:
            check_output(path, given, flag)
    if args.output and args.report and same_file(args.output, args.report):
        raise UserError(f"{args.report} is both --output and --report; choose another --report")
    if not sys.stdout.isatty():
        sys.stdout.reconfigure(encoding="utf-8")  # data for another program, whatever the locale
    with contextlib.ExitStack() as stack:
        checkpoints, corpus = stack.enter_context(opened(args.path))
        if corpus is not None and (args.corpus or args.data):
            raise UserError("--corpus and --data: a release archive brings its own corpus; omit them")
        translator = open_translator(
            checkpoints,
            corpus or args.corpus,
            data=args.data,
            cpu=args.cpu,
            int8=args.int8,
            load=load_model if args.report else None,
            beam=args.beam,
            length_penalty=args.lenpen,
            max_len_a=args.max_len_a,
            max_len_b=args.max_len_b,
            nbest=args.nbest or 1,
            max_tokens=args.max_tokens,
            new_piece_penalty=args.new_piece_penalty,
        )
        given, name = chunks(args)
        lines, found, number, unfinished = [], [], 0, []
        output = sys.stdout
        if args.output:
            beside = stack.enter_context(atomic_write(args.output))
            output = stack.enter_context(beside.open("w", encoding="utf-8"))
        for chunk in given:
            translated = translator(chunk, number + 1, name)
            for hypotheses in translated:
                number += 1
                if hypotheses and hypotheses[0].unfinished:
                    unfinished.append(number - 1)
                output.write(formatted(number, hypotheses, args.nbest))
            output.flush()
            if args.report:
                lines += chunk
                found += translated
        if unfinished:
            print(
                f"warning: {len(unfinished)} translations reached {translator.limit}, and may lack their end "
                f"({first_few(unfinished)}); see --max-len-b",
                file=sys.stderr,
            )
        if args.report:
            write_report(args, checkpoints, translator, lines, found)
