"""Corpora: from a YAML description to raw text, sentencepiece pieces and fairseq's binarised data."""

from .corpus import Corpus, known_corpora, load_corpus

__all__ = ["Corpus", "known_corpora", "load_corpus"]
