"""Write a trained model as a plain folder: checkpoint, dictionaries, pieces, and a README with its scores.

  export.py --path checkpoints/toy/alpha_entmax/average.pt --output models/toy
  translate.py --model models/toy "Wer sieht den kleinen Hund?"

With --transformers FOLDER instead of --output FOLDER, the folder is for Hugging Face's transformers.
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

from .options import Parser, plain_name


def main(argv=None) -> None:
    """Write the folder, and print its name or, for transformers, the call that loads it."""
    parser = Parser(__doc__)
    parser.add("--path", Path, "checkpoint to export, or a plain folder", required=True, metavar="CHECKPOINT")
    parser.add("--output", Path, "new plain folder to write", metavar="FOLDER")
    parser.add(
        "--transformers", Path, "new folder to write for Hugging Face's transformers", metavar="FOLDER"
    )
    parser.add("--corpus", plain_name, "default: the one that the checkpoint names")
    parser.add_data_option()
    parser.add_switch("--float32", "keep the parameters' precision (default: float16)")
    args = parser.parse_args(argv)
    if (args.output is None) == (args.transformers is None):
        parser.error("name one new folder: --output FOLDER, or --transformers FOLDER")

    import torch

    from ..analysis.translation_links import KEY, choice_for
    from ..checkpoints import load_checkpoint
    from ..errors import UserError
    from ..hugging_face import hugging_face, model_folder
    from ..translation.loading import corpus_of, find_model

    logging.getLogger("fairseq").setLevel(logging.WARNING)
    path, corpus = find_model(args.path)
    corpus = corpus or corpus_of(load_checkpoint(path), path, args.corpus, args.data)
    if args.transformers is not None:
        name = hugging_face.write_folder(path, corpus, args.transformers)
        trust = "" if name.startswith("M2M100") else ", trust_remote_code=True"
        print(f'{name}: AutoModelForSeq2SeqLM.from_pretrained("{args.transformers}"{trust})')
        return
    extra = {}
    with contextlib.suppress(UserError):  # there is no context attention, or no validation split
        extra[KEY] = choice_for(path, corpus, cpu=True)
    model_folder.write_folder(
        path, corpus, args.output, torch.float32 if args.float32 else torch.float16, extra
    )
    print(args.output)
