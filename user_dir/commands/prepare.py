"""Prepare a corpus: raw files → text → sentencepiece pieces → fairseq's binarised data, under data/CORPUS.

Finished stages are skipped; to resume after an interruption, repeat the command.
"""

from __future__ import annotations

import logging
from pathlib import Path

from .options import Parser, plain_name

INTERRUPTED = "interrupted; the same command continues from here"


def main(argv=None) -> None:
    """Parse the command line, prepare, print what came out."""
    from ..corpora.corpus import known_corpora, load_corpus

    parser = Parser(__doc__)
    names = ", ".join(known_corpora()).replace("%", "%%")  # argparse formats help texts
    what = f"one of: {names}" if names else "the name of a folder in data/ that has a corpus.yaml"
    parser.add("corpus", plain_name, what, metavar="CORPUS")
    what = "folder with the raw files, plain or .gz (default: download them)"
    parser.add("--raw", Path, what, metavar="DIR")
    what = "size of the joint vocabulary (default: of the last run, of corpus.yaml, or by number of pairs)"
    parser.add("--vocab-size", int, what)
    parser.add_data_option()
    parser.add("--workers", int, "threads (default: one per core)")
    parser.add_switch("--config", "also write training configs for a corpus of your own into configs/CORPUS")
    parser.add_switch("--force", "repeat every stage except downloads")
    args = parser.parse_args(argv)

    from ..corpora.stages import prepare
    from ..corpora.starter_configs import write_configs
    from ..corpora.summary import summary

    # fairseq, imported by the plugin, has set up logging in its own way.
    logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)
    corpus = load_corpus(args.corpus, args.data)
    prepare(corpus, args.raw, args.vocab_size, args.workers, args.force)
    if args.config:
        print(f"training configs: {write_configs(corpus).parent}")
    print(summary(corpus))
