"""Write a trained model as a plain folder: checkpoint, dictionaries, pieces, and a README with its scores.

  export.py --path checkpoints/toy/alpha_entmax/average.pt --output models/toy
  translate.py --model models/toy "Wer sieht den kleinen Hund?"

With --transformers, the folder is one that Hugging Face's transformers loads.
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

from .options import Parser, plain_name


def main(argv=None) -> None:
    """Write the folder, and print how it is used."""
    parser = Parser(__doc__)
    parser.add("--path", Path, "checkpoint to export", required=True, metavar="CHECKPOINT")
    parser.add("--output", Path, "new folder to write", required=True, metavar="FOLDER")
    parser.add("--corpus", plain_name, "default: the one that the checkpoint names")
    parser.add_data_option()
    parser.add_switch("--float32", "keep the parameters' precision (default: float16)")
    parser.add_switch("--transformers", "write a folder for Hugging Face's transformers")
    args = parser.parse_args(argv)

    import torch

    from .. import models  # noqa: F401  registers the model
    from ..analysis.translation_links import KEY, choice_for
    from ..checkpoints import load_checkpoint
    from ..errors import UserError
    from ..hugging_face import hugging_face, model_folder
    from ..translation.loading import corpus_of

    logging.getLogger("fairseq").setLevel(logging.WARNING)
    corpus = corpus_of(load_checkpoint(args.path), args.path, args.corpus, args.data)
    if args.transformers:
        name = hugging_face.write_folder(args.path, corpus, args.output)
        trust = "" if name.startswith("M2M100") else ", trust_remote_code=True"
        print(f'{name}: AutoModelForSeq2SeqLM.from_pretrained("{args.output}"{trust})')
        return
    extra = {}
    with contextlib.suppress(UserError):  # it has no context attention to align words with
        extra[KEY] = choice_for(args.path, corpus, cpu=True)
    model_folder.write_folder(
        args.path, corpus, args.output, torch.float32 if args.float32 else torch.float16, extra
    )
    print(args.output)
