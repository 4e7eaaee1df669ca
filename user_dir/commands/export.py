"""Write a trained model as a plain folder: checkpoint, dictionaries, pieces, and a README with its scores.

  export.py --path checkpoints/toy/alpha_entmax/average.pt --output models/toy
  translate.py --model models/toy "Wer sieht den kleinen Hund?"

With --transformers, the folder is one that Hugging Face's transformers loads.
"""

from __future__ import annotations

import argparse
import logging

from .options import add_data_option, file_path, new_parser, option_adder, path_of, plain_name


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = new_parser(__doc__)
    add = option_adder(parser)
    add("--path", file_path, "checkpoint to export", required=True, metavar="CHECKPOINT")
    add("--output", path_of, "new folder to write", required=True, metavar="FOLDER")
    add("--corpus", plain_name, "default: the one that the checkpoint names")
    add_data_option(parser)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--float32", action="store_true", help="keep the parameters' precision (default: float16)"
    )
    kind.add_argument(
        "--transformers", action="store_true", help="write a folder for Hugging Face's transformers"
    )
    return parser.parse_args(argv)


def main(argv=None) -> None:
    """Write the folder, and print how it is used."""
    args = parse_args(argv)

    import torch

    from .. import models  # noqa: F401  registers the model
    from ..checkpoints import load_checkpoint
    from ..hugging_face import hugging_face, model_folder
    from ..translation.loading import corpus_of

    logging.getLogger("fairseq").setLevel(logging.WARNING)
    corpus = corpus_of(load_checkpoint(args.path), args.path, args.corpus, args.data)
    if not args.transformers:
        dtype = torch.float32 if args.float32 else torch.float16
        model_folder.write_folder(args.path, corpus, args.output, dtype)
        print(args.output)
        return
    name = hugging_face.write_folder(args.path, corpus, args.output)
    trust = "" if name.startswith("M2M100") else ", trust_remote_code=True"
    print(f'{name}: AutoModelForSeq2SeqLM.from_pretrained("{args.output}"{trust})')
