"""Prepare a corpus: raw files → text → sentencepiece pieces → fairseq's binarised data, under data/CORPUS.

Finished stages are skipped; to resume after an interruption, repeat the command. From pairs of your own:

  prepare.py --pairs talks.tsv --source sl --target en    # source, tab, target in each line; or two files:
  prepare.py --pairs talks.sl talks.en
"""

from __future__ import annotations

import logging
from pathlib import Path

from .options import Parser, plain_name, positive

INTERRUPTED = "interrupted; the same command continues from here"


def main(argv=None) -> None:
    """Parse the command line, prepare, print what came out."""
    from ..corpora.corpus import known_corpora, load_corpus

    parser = Parser(__doc__)
    names = ", ".join(known_corpora()).replace("%", "%%")  # argparse formats help texts
    what = f"one of: {names}" if names else "the name of a folder in data/ that has a corpus.yaml"
    parser.add("corpus", plain_name, what, metavar="CORPUS", nargs="?")
    what = "instead of CORPUS: make one of these pairs, with configs; some are held out to validate and test"
    parser.add("--pairs", Path, what, nargs="+", action="extend", default=[])
    for flag in ("--source", "--target"):
        parser.add(flag, str, "of --pairs: code of the language (default: its file's ending)", metavar="CODE")
    parser.add("--name", plain_name, "of --pairs: name of the corpus (default: that of the file)")
    what = "folder with the raw files, plain or .gz (default: download them)"
    parser.add("--raw", Path, what, metavar="DIR")
    what = "size of the joint vocabulary (default: of the last run, of corpus.yaml, or by number of pairs)"
    parser.add("--vocab-size", positive, what)
    parser.add_data_option()
    parser.add("--workers", positive, "threads (default: one per core)")
    parser.add_switch("--config", "also write training configs for a corpus of your own into configs/CORPUS")
    parser.add_switch("--force", "repeat every stage except downloads")
    args = parser.parse_args(argv)
    tables = [file for file in args.pairs if {".tsv", ".tmx"} & set(file.suffixes)]
    if bool(args.corpus) == bool(args.pairs) or len(args.pairs) > (1 if tables else 2):
        parser.error("give a CORPUS, or --pairs and one TSV or TMX or two files of lines")
    if len(args.pairs) == 1 and not (args.source and args.target):
        parser.error("--pairs FILE.tsv: give the languages of its columns, --source CODE --target CODE")

    from ..corpora.own_pairs import describe_pairs
    from ..corpora.readers import ending_of
    from ..corpora.stages import prepare
    from ..corpora.starter_configs import write_configs
    from ..corpora.summary import summary

    # fairseq, imported by the plugin, has set up logging in its own way.
    logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)
    if args.pairs:
        ends = [ending_of(file.name) for file in args.pairs]
        languages = args.source or ends[0], args.target or ends[-1]
        name = args.name or args.pairs[0].name.partition(".")[0]
        corpus = describe_pairs(args.pairs, languages, name, args.data)
    else:
        corpus = load_corpus(args.corpus, args.data)
    prepare(corpus, args.raw, args.vocab_size, args.workers, args.force)
    config = write_configs(corpus) if args.config or args.pairs else None
    print(summary(corpus, config))
