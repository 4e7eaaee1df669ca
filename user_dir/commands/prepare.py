"""Prepare a corpus: raw files → text → sentencepiece pieces → fairseq's binarised data, under data/CORPUS."""

from __future__ import annotations

import argparse
import logging

from .options import add_data_option, option_adder, path_of, plain_name

INTERRUPTED = "interrupted; the same command continues from here"


def main(argv=None) -> None:
    """Parse the command line, prepare, print what came out."""
    from ..corpora.corpus import known_corpora, load_corpus

    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="Finished stages are skipped; to resume after an interruption, repeat the command.",
    )
    add = option_adder(parser)
    names = ", ".join(known_corpora()).replace("%", "%%")  # argparse formats help texts
    described = f"one of: {names}" if names else "the name of a folder in data/ that has a corpus.yaml"
    add("corpus", plain_name, described, metavar="CORPUS")
    add("--raw", path_of, "folder with the raw files, plain or .gz (default: download them)")
    what = "size of the joint vocabulary (default: of the last run, of corpus.yaml, or by number of pairs)"
    add("--vocab-size", int, what)
    add_data_option(parser)
    add("--workers", int, "threads (default: one per core)")
    what = "also write training configs for a corpus of your own into configs/CORPUS"
    parser.add_argument("--config", action="store_true", help=what)
    parser.add_argument("--force", action="store_true", help="repeat every stage except downloads")
    arguments = parser.parse_args(argv)

    from ..corpora.stages import prepare
    from ..corpora.starter_configs import write_configs
    from ..corpora.summary import summary

    # fairseq, imported by the plugin, has set up logging in its own way.
    logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)
    corpus = load_corpus(arguments.corpus, arguments.data)
    prepare(corpus, arguments.raw, arguments.vocab_size, arguments.workers, arguments.force)
    if arguments.config:
        print(f"training configs: {write_configs(corpus).parent}")
    print(summary(corpus))
