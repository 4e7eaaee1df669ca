"""Translate sentences: those given as arguments, those of a file, or those that come through a pipe.

A sentence a line, natural text in, natural text out; an empty line stays an empty line. Through a pipe, every
line is answered as soon as it is translated.

  translate.py --model de-en "Ein Satz." --report heads.html    # a model that comes with the project
  translate.py --model exported/my-model < talk.de    # a model as a folder, which needs no prepared corpus
  translate.py --path checkpoints/toy/alpha_entmax/average.pt --input talk.de --output talk.en
  translate.py --path average.pt --nbest 3 < talk.de      # line, score and translation, separated by tabs
  translate.py --path a.pt --path b.pt "Guten Morgen."    # an ensemble
  translate.py --path average.pt --alignment "Guten Morgen."    # translation, tab, links such as 0-0 1-1
  translate.py --path post-editor.pt < src-tab-mt.tsv     # corrects translations: source, tab, translation

A line that cannot be translated, because it is not UTF-8 or longer than the model allows, ends the command
after the lines before it are written; with --skip-bad-lines it becomes an empty line.

--alignment links words, which white space parts, counted from 0: source-target. The head or layer that links
best is found on validation text and remembered beside the checkpoint.

--report also draws what every head attends to on these sentences, while the decoder reads the translations.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from lzma import LZMAError
from pathlib import Path

from .options import (
    add_cpu_option,
    add_search_options,
    file_path,
    new_parser,
    option_adder,
    path_of,
    plain_name,
    positive,
)

CHUNK = 2000  # lines of a file that are sorted by length and translated together
BLOCK = 1 << 16  # bytes of a pipe that are
OPTIONS = ("data", "cpu", "int8", "beam", "length_penalty", "max_len_a", "max_len_b", "max_tokens")
OPTIONS += ("new_piece_penalty",)  # of the translator


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = new_parser(__doc__)
    add = option_adder(parser)
    add("sentences", str, "sentences to translate", nargs="*", metavar="SENTENCE")
    what = "checkpoint to translate with; several make an ensemble"
    add("--path", file_path, what, action="append", default=[], metavar="CHECKPOINT")
    what = "folder of a model, or name of one that comes with the project, such as de-en; see data/models"
    add("--model", path_of, what, action="append", default=[], metavar="FOLDER|NAME")
    add("--input", file_path, "a sentence a line (default: stdin)")
    add("--output", file_path, "default: stdout")
    add("--corpus", plain_name, "corpus to preprocess for (default: the one that the checkpoint names)")
    add("--data", path_of, "folder of the corpora (default: data/)")
    add_search_options(parser)
    columns = "number of the line, score (mean log2 p of the tokens) and text, separated by tabs"
    add("--nbest", positive, f"print the N best translations of each sentence: {columns}")
    what = "translate lines that cannot be translated to empty lines"
    parser.add_argument("--skip-bad-lines", action="store_true", help=what)
    parser.add_argument("--alignment", action="store_true", help="also print links of words, after a tab")
    head = "by this LAYER (mean of heads) or LAYER:HEAD, from 0; with @input, by the step reading a word"
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
    if args.report and (args.int8 or args.report.suffix != ".html"):
        parser.error("--report FILE.html draws what the exact model attends to, without --int8")
    return args


def main(argv=None) -> None:
    """Translate line by line, or many lines together where many are there; then report on the heads."""
    args = parse_args(argv)

    from ..files import check_output
    from ..translation.loading import find_model
    from ..translation.translator import Translator

    logging.getLogger("fairseq").setLevel(logging.WARNING)
    models = [(path, None) for path in args.path] + list(map(find_model, args.model))
    checkpoints = [checkpoint for checkpoint, _ in models]
    corpus = args.corpus or next((corpus for _, corpus in models if corpus), None)
    chunks, name = chunks_of(args), "arguments" if args.sentences else str(args.input or "stdin")
    for flag, path in (("--output", args.output), ("--report", args.report)):
        if path:
            check_output(path, [*checkpoints, args.input or Path("/dev/stdin")], flag)
    load = None
    if args.report or (args.alignment and not args.int8):
        from ..analysis.capture import load_model as load
    options = {option: getattr(args, option) for option in OPTIONS}
    translator = Translator(checkpoints, corpus, load=load, nbest=args.nbest or 1, **options)
    align = aligner_of(args, checkpoints, translator) if args.alignment else None
    with contextlib.ExitStack() as stack:
        if args.output:
            args.output.parent.mkdir(parents=True, exist_ok=True)
            output = stack.enter_context(args.output.open("w", encoding="utf-8"))
        else:
            output = sys.stdout
            if not output.isatty():
                output.reconfigure(encoding="utf-8")  # data for another program, whatever the locale
        pairs = translate(args, translator, chunks, name, output, align)
    if args.report:
        write_report(args, checkpoints, translator, pairs)


def chunks_of(args: argparse.Namespace) -> Iterator[list[bytes]]:
    """Lists of lines to translate together, in order."""
    from ..errors import UserError

    if args.sentences:
        return iter([[sentence.encode() for sentence in args.sentences]])
    if args.input:
        if not args.input.is_file():
            raise UserError(f"no file {args.input}")
        return lines_of(args.input)
    if sys.stdin is None:
        raise UserError("there is nothing to translate: standard input is closed")
    if sys.stdin.isatty():
        print("reading sentences from the terminal, one a line; Ctrl-D ends", file=sys.stderr)
    return arriving_lines(sys.stdin.buffer)


def lines_of(path: Path) -> Iterator[list[bytes]]:
    """The lines of a file, plain or compressed, many at once."""
    from ..errors import UserError
    from ..files import open_binary

    try:
        with open_binary(path) as file:
            while lines := list(islice(file, CHUNK)):
                yield lines
    except (OSError, EOFError, LZMAError):
        raise UserError(f"cannot read {path}, or it is damaged") from None


def arriving_lines(file) -> Iterator[list[bytes]]:
    """The lines of a pipe or terminal as they arrive, several at once if they are there."""
    rest = b""
    while block := file.read1(BLOCK):
        *lines, rest = (rest + block).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


def translate(args: argparse.Namespace, translator, chunks, name: str, output, align=None) -> list[tuple]:
    """Write the translations; the sentences and their best hypotheses, if there is to be a report on them."""
    from ..corpora.readers.lines import decoded
    from ..errors import UserError, first_few

    pairs, number, unfinished = [], 0, []
    for chunk in chunks:
        sentences, encoded, fault = [], [], None
        for line in chunk:
            try:
                sentence = decoded(line, number + len(sentences) + 1, name)
                tokens = translator.encode(sentence, number + len(sentences) + 1, name)
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
                pairs.append((sentence, tokens, hypotheses[0]))
        output.flush()
        if fault is not None:
            raise fault
    if unfinished:
        told = f"{len(unfinished)} translations reached {translator.limit}, and may lack their end"
        print(f"warning: {told} ({first_few(unfinished)}); see --max-len-b", file=sys.stderr)
    return pairs


def formatted(number: int, hypotheses: list, nbest: int | None, links: list[str] | None) -> str:
    """The lines of output for the sentence on line ``number``; ``links`` of each hypothesis, if wanted."""
    rows = [(f"{best.score:.4f}", best.text) for best in hypotheses] or [("0.0000", "")]
    rows = [[text] if nbest is None else [str(number), score, text] for score, text in rows]
    if links is not None:
        rows = [[*row, of_row] for row, of_row in zip(rows, links or [""])]
    return "".join("\t".join(row) + "\n" for row in rows)


def aligner_of(args: argparse.Namespace, checkpoints: list[Path], translator):
    """A function from sentences, their tokens and hypotheses to the links of each hypothesis, as text."""
    from ..analysis.alignment import pharaoh
    from ..analysis.translation_links import Pair, TranslationAligner, choice_for, parse_choice

    if args.alignment_head is not None:
        choices = [parse_choice(args.alignment_head)] * len(checkpoints)
    else:
        choices = [choice_for(path, translator.corpus, cpu=args.cpu) for path in checkpoints]
    print(f"aligned by {', '.join(map(str, choices))}", file=sys.stderr)
    aligner = TranslationAligner(translator.models, translator.task, choices, args.max_tokens)

    def align(sentences: list[str], encoded: list, translations: list[list]) -> list[list[str]]:
        pairs = [
            Pair(text, tokens, hypothesis.text, hypothesis.tokens)
            for text, tokens, hypotheses in zip(sentences, encoded, translations)
            for hypothesis in hypotheses
        ]
        links = iter(aligner(pairs))
        return [[pharaoh(next(links)) for _ in hypotheses] for hypotheses in translations]

    return align


def write_report(args: argparse.Namespace, checkpoints: list[Path], translator, pairs: list[tuple]) -> None:
    """Draw the heads of each model on sentences, their tokens and best hypotheses, the ``pairs``."""
    from ..analysis.measuring import analyse_translations
    from ..analysis.report import write_report
    from ..analysis.results import model_names

    texts, sources = [text for text, _, _ in pairs], [tokens for _, tokens, _ in pairs]
    targets, models = [best.tokens for _, _, best in pairs], []
    with tempfile.TemporaryDirectory() as folder:
        for checkpoint, name, model in zip(checkpoints, model_names(checkpoints), translator.models):
            maps = Path(folder) / str(len(models))
            split = translator.corpus, model, translator.task, sources, targets, texts
            models.append(analyse_translations(name, checkpoint, *split, maps))
        write_report(models, args.report, len(texts))
    print(f"head report: {args.report}", file=sys.stderr)
