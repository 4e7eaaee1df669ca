"""A tiny corpus, made by the tests."""

from __future__ import annotations

import gzip
from pathlib import Path

DESCRIPTION = """\
title: a tiny corpus
languages: [de, en]
splits:
  train: train.{language}
  valid: ["dev.{language}"]
  big_test: first.{language}
  odd_test: second.{language}
vocabulary_size: 60
licence: none
citation: none
"""
GERMAN = ["Der Hund schläft.", "Die Katze sieht den Hund.", "Wo ist das Haus?", "Heute singt das Kind."]
ENGLISH = ["The dog sleeps.", "The cat sees the dog.", "Where is the house?", "Today the child sings."]


def write(path: Path, lines: list[str]) -> None:
    data = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)
