"""Build the release archive of a trained model, from which translate.py translates without a prepared corpus.

The archive contains the model, its vocabulary and dictionaries, the wheel of this package, checksums, and a
model card with the settings of the training and the scores that evaluate.py wrote.

  release.py --path checkpoints/toy/alpha_entmax/average.pt --output toy.tar
  translate.py --path toy.tar "Wer sieht den kleinen Hund?"

With --transformers, a folder that Hugging Face's transformers loads, instead of an archive; with --onnx, one
for onnxruntime. Both also take an archive: --path toy.tar.
"""

from __future__ import annotations

import argparse
import contextlib
import logging

from ..command_line import file_path, option_adder, path_of, plain_name
from .options import add_data_option, new_parser


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = new_parser(__doc__)
    add = option_adder(parser)
    add("--path", file_path, "checkpoint to release", required=True, metavar="CHECKPOINT")
    add("--corpus", plain_name, "default: the one that the checkpoint names")
    add_data_option(parser)
    beside = "evaluation/CHECKPOINT beside it, else evaluation"
    add("--evaluation", path_of, f"folder of evaluate.py's scores (default: {beside})")
    what = "archive (default: CHECKPOINT.release.tar beside the checkpoint)"
    add("--output", file_path, what, metavar="FILE.tar")
    what = "new folder to write for Hugging Face's transformers, instead of an archive"
    folders = parser.add_mutually_exclusive_group()
    folders.add_argument("--transformers", type=path_of, help=what, metavar="FOLDER")
    what = "new folder to write for onnxruntime, instead of an archive"
    folders.add_argument("--onnx", type=path_of, help=what, metavar="FOLDER")
    args = parser.parse_args(argv)
    if (args.transformers or args.onnx) and (args.output or args.evaluation):
        parser.error("--transformers or --onnx FOLDER is the output; omit --output and --evaluation")
    args.output = args.output or args.path.with_name(f"{args.path.stem}.release.tar")
    if args.output.suffix != ".tar":
        parser.error(f"--output {args.output} must end in .tar")
    return args


def main(argv=None) -> None:
    """Build, and print what the archive contains."""
    args = parse_args(argv)

    from .. import models  # noqa: F401  registers the model
    from ..analysis import alignment_choice
    from ..checkpoints import load_checkpoint
    from ..errors import UserError
    from ..io import check_output
    from ..releases.building import write_release
    from ..releases.scores import scores_folder
    from ..translation.direction import corpus_of

    logging.getLogger("fairseq").setLevel(logging.WARNING)
    if args.transformers or args.onnx:
        export(args)
        return
    check_output(args.output, [args.path])
    if args.evaluation and not args.evaluation.is_dir():
        raise UserError(f"--evaluation {args.evaluation}: there is no such folder")
    corpus = corpus_of(load_checkpoint(args.path), args.path, args.corpus, args.data)
    evaluation = args.evaluation or scores_folder(args.path)
    check_output(args.output, [*corpus.kept, *(evaluation.glob("*") if evaluation.is_dir() else ())])
    choice = None
    with contextlib.suppress(UserError):  # no model of ours, or no context attention
        choice = alignment_choice.chosen(args.path, corpus, cpu=True)
    release = write_release(
        args.path, corpus, evaluation, args.output, choice and {alignment_choice.KEY: str(choice)}
    )
    for name, entry in release.manifest.files.items():
        print(f"{entry.bytes:>12,}  {name}")
    if choice:
        print(f"translate.py --alignment aligns by {choice}")
    if release.scored:
        print(f"scores of {', '.join(release.scored)}")
    else:
        print(f"no scores: there are none in {evaluation}; evaluate.py writes them")
    print(f"{args.output}  SHA-256 {release.sha256}")


def export(args: argparse.Namespace) -> None:
    """Write the folder for another program, and print how it is used."""
    from ..checkpoints import load_checkpoint
    from ..errors import UserError
    from ..releases import hugging_face, onnx_folder
    from ..releases.opened import opened
    from ..translation.direction import corpus_of

    for name in ("onnx_ir", "onnxscript", "torch.onnx"):
        logging.getLogger(name).setLevel(logging.ERROR)
    flag, folder = ("--transformers", args.transformers) if args.transformers else ("--onnx", args.onnx)
    if folder.exists():
        raise UserError(f"{flag} {folder} exists already; name a new folder")
    with opened([args.path]) as ((checkpoint,), corpus):
        if corpus is not None and (args.corpus or args.data):
            raise UserError("--corpus and --data: a release archive brings its own corpus; omit them")
        corpus = corpus or corpus_of(load_checkpoint(checkpoint), checkpoint, args.corpus, args.data)
        if args.onnx:
            onnx_folder.write_folder(checkpoint, corpus, folder)
            print(f'python {folder / onnx_folder.PROGRAM} "A sentence."')
            return
        name = hugging_face.write_folder(checkpoint, corpus, folder)
    trust = "" if name.startswith("M2M100") else ", trust_remote_code=True"
    print(f"{folder}: {name}")
    print(f'AutoModelForSeq2SeqLM.from_pretrained("{folder}"{trust})')
