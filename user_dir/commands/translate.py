"""Translate sentences: those given as arguments, those of a file, or those that come through a pipe.

A sentence a line, natural text in, natural text out; an empty line stays an empty line. Through a pipe, every
line is answered as soon as it is translated. The corpus, whose preprocessing the model was trained with, is
the one that the checkpoint names, unless --corpus names another.

  translate.py --model de-en "Ein Satz." --report heads.html    # a model that comes with the project
  translate.py --path checkpoints/toy/alpha_entmax/average.pt "Wer sieht den kleinen Hund?"
  translate.py --path average.pt --input talk.de --output talk.en
  translate.py --path average.pt --nbest 3 < talk.de      # line, score and translation, separated by tabs
  translate.py --path a.pt --path b.pt "Guten Morgen."    # an ensemble
  translate.py --path average.pt --alignment "Guten Morgen."    # translation, tab, links such as 0-0 1-1
  translate.py --path average.pt --report heads.html "Guten Morgen."
  translate.py --path post-editor.pt < src-tab-mt.tsv     # corrects translations: source, tab, translation
  translate.py --path release.tar < talk.de     # an archive by release.py, which needs no prepared corpus

--alignment links words, which white space parts, counted from 0: source-target. The head or layer that links
best is found on validation text and remembered beside the checkpoint; a release archive names it.

--report also draws what every head attends to on these sentences, while the decoder reads the translations.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from ..command_line import file_path, option_adder, path_of, plain_name, positive
from .options import add_cpu_option, add_search_options

CHUNK = 2000  # lines of a file that are sorted by length and translated together


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = option_adder(parser)
    add("sentences", str, "sentences to translate", nargs="*", metavar="SENTENCE")
    what = "checkpoint or release archive to translate with; several make an ensemble"
    add("--path", file_path, what, action="append", default=[], metavar="CHECKPOINT")
    what = "name of a model that comes with the project, such as de-en; see data/models"
    add("--model", plain_name, what, action="append", default=[], metavar="NAME")
    add("--input", file_path, "a sentence a line (default: stdin)")
    add("--output", file_path, "default: stdout")
    add("--corpus", plain_name, "default: the one that the checkpoint names")
    add("--data", path_of, "folder of the corpora (default: data/)")
    add_search_options(parser)
    columns = "number of the line, score (mean log2 p of the tokens) and text, separated by tabs"
    add("--nbest", positive, f"print the N best translations of each sentence: {columns}")
    parser.add_argument("--alignment", action="store_true", help="also print links of words, after a tab")
    head = (
        "by this LAYER (mean of its heads) or LAYER:HEAD, from 0; with @input, by the step that reads a word"
    )
    add("--alignment-head", str, f"{head} (default: the best on validation)", metavar="LAYER:HEAD")
    add("--max-tokens", positive, "tokens in a batch (default: 4096)", default=4096)
    add("--report", file_path, "also write the head report", metavar="FILE.html")
    add_cpu_option(parser)
    args = parser.parse_args(argv)
    if not args.path and not args.model:
        parser.error("give a model: --path CHECKPOINT, or --model NAME")
    if args.sentences and args.input:
        parser.error("give sentences or --input FILE, not both")
    args.alignment = args.alignment or args.alignment_head is not None
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


def formatted(number: int, hypotheses: list, nbest: int | None, links: list[str] | None) -> str:
    """The lines of output for the sentence on line ``number``; ``links`` of each hypothesis, if wanted."""
    rows = [[each.text] if nbest is None else [number, f"{each.score:.4f}", each.text] for each in hypotheses]
    if not rows:
        rows = [[""] if nbest is None else [number, "0.0000", ""]]
    if links is not None:
        rows = [[*row, found] for row, found in zip(rows, links or [""])]
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def aligner_of(args: argparse.Namespace, checkpoints: list[Path], translator):
    """A function from sentences and their hypotheses to the links of each hypothesis, as text."""
    from ..analysis import alignment_choice
    from ..analysis.alignment import pharaoh
    from ..analysis.translation_links import Pair, TranslationAligner
    from ..checkpoints import load_checkpoint
    from ..errors import UserError

    def choice_of(path: Path, checkpoint: Path):
        if args.alignment_head is not None:
            return alignment_choice.given(args.alignment_head)
        if path == checkpoint:
            return alignment_choice.chosen(path, translator.corpus, cpu=args.cpu)
        released = alignment_choice.released(load_checkpoint(checkpoint))
        if released is None:
            raise UserError(f"{path} does not say which head aligns best; give --alignment-head LAYER:HEAD")
        return released

    choices = [choice_of(*each) for each in zip(args.path, checkpoints)]
    print(f"aligned by {', '.join(map(str, choices))}", file=sys.stderr)
    aligner = TranslationAligner(translator.search.models, translator.search.task, choices, args.max_tokens)

    def align(sentences: list[str], found: list[list], *where) -> list[list[str]]:
        pairs = [
            Pair(text, tokens, each.text, each.tokens)
            for text, tokens, hypotheses in zip(sentences, translator.encode(sentences, *where), found)
            for each in hypotheses
        ]
        links = iter(aligner(pairs))
        return [[pharaoh(next(links)) for _ in hypotheses] for hypotheses in found]

    return align


def write_report(args: argparse.Namespace, checkpoints: list[Path], translator, pairs: list[tuple]) -> None:
    """Draw the heads of each model on sentences and their best translations, the ``pairs``."""
    from ..analysis.report import write_report
    from ..analysis.result_files import model_names
    from ..analysis.translated import analyse_translations

    texts = [line for line, _ in pairs]
    sources, targets = translator.encode(texts), [best.tokens for _, best in pairs]
    models, names = [], model_names(args.path)
    with tempfile.TemporaryDirectory() as folder:
        for path, checkpoint, name, model in zip(args.path, checkpoints, names, translator.search.models):
            maps = Path(folder) / f"{len(models)}.npz"
            given = translator.corpus, model, translator.search.task, sources, targets, texts
            models.append(analyse_translations(name, checkpoint, *given, maps))
            models[-1].statistics["checkpoint"] = str(path)  # of an archive it is a temporary file
        write_report(models, args.report, len(texts))
    print(f"head report: {args.report}", file=sys.stderr)


def check_outputs(args: argparse.Namespace) -> None:
    """Raise UserError where an output would replace an input or the other output."""
    from ..errors import UserError
    from ..io import check_output, same_file

    given = [*args.path]
    if not args.sentences:
        given.append(args.input or Path("/dev/stdin"))  # which may be a file, too: < talk.de
    for flag, path in (("--output", args.output), ("--report", args.report)):
        if path:
            check_output(path, given, flag)
    if args.output and args.report and same_file(args.output, args.report):
        raise UserError(f"{args.report} is both --output and --report; choose another --report")


def find_models(args: argparse.Namespace) -> None:
    """Add the archives of named models to ``--path``.

    A first try does not wait for native kernels: compiling them takes longer than a few sentences do by
    fairseq, if it is installed.
    """
    if not args.model:
        return
    from ..decoding.kernels import kernels
    from ..releases.named import named_model

    args.path += map(named_model, args.model)
    if args.sentences and not (args.int8 or kernels.built()) and find_spec("fairseq"):
        os.environ.setdefault("ENTMAX_BACKEND", "reference")
        told = "native kernels are not compiled yet; give sentences through a pipe to compile them once, and"
        print(f"{told} every call takes half of the time", file=sys.stderr)
        package = __package__.partition(".")[0]  # attention would name this as a shortcoming
        logging.getLogger(f"{package}.attention.dispatch").setLevel(logging.WARNING)


def loader_of(args: argparse.Namespace):
    """The function that loads models whose heads are looked at; None where none are."""
    if not args.report and (args.int8 or not args.alignment):
        return None
    from ..analysis.capture import load_model

    return load_model


def main(argv=None) -> None:
    """Translate line by line, or many lines together where many are there; then report on the heads."""
    args = parse_args(argv)
    find_models(args)

    from ..errors import UserError
    from ..io import atomic_write
    from ..releases.opened import opened
    from ..translation.translator import open_translator

    logging.getLogger("fairseq").setLevel(logging.WARNING)
    check_outputs(args)
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
            load=loader_of(args),
            by_fairseq=bool(args.report or args.alignment),
            beam=args.beam,
            length_penalty=args.length_penalty,
            max_len_a=args.max_len_a,
            max_len_b=args.max_len_b,
            nbest=args.nbest or 1,
            max_tokens=args.max_tokens,
            new_piece_penalty=args.new_piece_penalty,
        )
        align = aligner_of(args, checkpoints, translator) if args.alignment else None
        output = sys.stdout
        if args.output:
            beside = stack.enter_context(atomic_write(args.output))
            output = stack.enter_context(beside.open("w", encoding="utf-8"))
        pairs = translate(args, translator, output, align)
        if args.report:
            write_report(args, checkpoints, translator, pairs)


def translate(args: argparse.Namespace, translator, output, align=None) -> list[tuple]:
    """Write the translations; the sentences and their best hypotheses, if there is to be a report on them."""
    from ..errors import first_few

    given, name = chunks(args)
    pairs, number, unfinished = [], 0, []
    for chunk in given:
        where = number + 1, name
        found = translator(chunk, *where)
        links = align(chunk, found, *where) if align else [None] * len(chunk)
        for sentence, hypotheses, linked in zip(chunk, found, links):
            number += 1
            output.write(formatted(number, hypotheses, args.nbest, linked))
            if hypotheses and hypotheses[0].unfinished:
                unfinished.append(number - 1)
            if hypotheses and args.report:
                pairs.append((sentence, hypotheses[0]))
        output.flush()
    if unfinished:
        is_model_s = translator.limit.b == translator.search.max_positions[1] - 1
        print(
            f"warning: {len(unfinished)} translations reached {translator.limit}, and may lack their end "
            f"({first_few(unfinished)}); {'the model allows no more' if is_model_s else 'see --max-len-b'}",
            file=sys.stderr,
        )
    return pairs
