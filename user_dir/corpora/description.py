"""What ``corpus.yaml`` says about one corpus, checked."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..reading import read_yaml

DIGITS = {"sha256": 64, "sha1": 40, "md5": 32}


@dataclass(frozen=True)
class Download:
    """Where one raw file is published, and what it must be."""

    urls: tuple[str, ...]  # mirrors of one another, the first is asked first
    size: int | None = None  # bytes as downloaded
    checksums: dict[str, str] = field(default_factory=dict)  # keys of DIGITS; see checksums.py


@dataclass(frozen=True)
class Description:
    """One ``corpus.yaml``.

    ``splits`` maps ``train``, ``valid`` and then each test set, by its public name and in order, to what
    the family of corpora reads it from: names of files, or a number of pairs to generate.
    """

    path: Path
    title: str
    languages: tuple[str, str]  # source, target
    splits: dict[str, Any]
    family: str = "parallel_text"
    vocabulary_size: int = 32_000  # entries; the paper's 32k are BPE merges
    licence: str = ""
    citation: str = ""
    character_coverage: float = 1.0
    byte_fallback: bool = False
    normalization: str = "nmt_nfkc"
    learn_from: int = 1_000_000
    clean: dict[str, Any] = field(default_factory=dict)
    normalise: dict[str, Any] = field(default_factory=dict)
    tokenised: bool = False
    sacrebleu: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    downloads: dict[str, Download] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    def error(self, key: str, complaint: str) -> UserError:
        """The error to raise over a key, naming file and line."""
        return UserError(f"{_where(self.path, self.lines, key)}: {complaint}")

    @property
    def test_sets(self) -> dict[str, str]:
        """Public name of each test set → the subset fairseq knows it by: test, test1, test2, …"""
        return {name: subset for name, subset in _subsets(self.splits).items() if subset.startswith("test")}


# key → (type, how the type is called in a sentence, must it be given)
KEYS = {
    "title": (str, "a text", True),
    "languages": (list, "a list of two language codes", True),
    "splits": (dict, "a mapping", True),
    "family": (str, "a text", False),
    "vocabulary_size": (int, "a whole number", False),
    "licence": (str, "a text", False),
    "citation": (str, "a text", False),
    "character_coverage": ((int, float), "a number between 0 and 1", False),
    "byte_fallback": (bool, "true or false", False),
    "normalization": (str, "a text", False),
    "learn_from": (int, "a whole number", False),
    "clean": (dict, "a mapping", False),
    "normalise": (dict, "a mapping", False),
    "tokenised": (bool, "true or false", False),
    "sacrebleu": (dict, "a mapping", False),
    "options": (dict, "a mapping", False),
    "downloads": (dict, "a mapping", False),
}


def read_description(path: Path) -> Description:
    """Read and check ``path``; a ``UserError`` names the file, the line and the remedy."""
    values, lines = _load(path)

    def fail(key: str, complaint: str) -> None:
        raise UserError(f"{_where(path, lines, key)}: {complaint}")

    for key in values:
        if key not in KEYS:
            fail(key, f"unknown key {key!r}; the known ones are {', '.join(KEYS)}")
    for key, (kind, called, required) in KEYS.items():
        if key not in values:
            if required:
                fail(key, f"the key {key!r} is missing; give {called}")
        elif not isinstance(values[key], kind) or isinstance(values[key], bool) != (kind is bool):
            fail(key, f"{key} is {values[key]!r}, but must be {called}")

    languages = values["languages"]
    if len(languages) != 2 or not all(_is_language(language) for language in languages):
        fail("languages", f"languages is {languages!r}, but must be two codes such as [de, en]")
    if languages[0] == languages[1]:
        fail("languages", f"languages names {languages[0]!r} twice; give source and target")
    if not {"train", "valid"} < values["splits"].keys():
        fail(
            "splits", f"splits has {', '.join(map(str, values['splits']))}; give train, valid and a test set"
        )
    for name in values["splits"]:
        if not isinstance(name, str):
            fail("splits", f"splits: the name {name!r} is not a text; write it in quotes")
        # Corpus.text takes a test set's own name and fairseq's, so they must not be crossed.
        if re.fullmatch(r"test\d*", name) and _subsets(values["splits"])[name] != name:
            fail("splits", f"splits: {name} would be fairseq's {_subsets(values['splits'])[name]}; rename it")
    for key in ("vocabulary_size", "learn_from"):
        if values.get(key, 1) < 1:
            fail(key, f"{key} is {values[key]}, but must be positive")
    if not 0 < values.get("character_coverage", 1.0) <= 1:
        fail("character_coverage", f"character_coverage is {values['character_coverage']}, not in (0, 1]")
    for name in values.get("sacrebleu", {}):
        if name not in values["splits"]:
            fail("sacrebleu", f"sacrebleu: there is no test set {name!r} under splits")
    downloads = {}
    for name, entry in values.pop("downloads", {}).items():
        try:
            downloads[name] = _download(name, entry)
        except UserError as error:
            fail("downloads", f"downloads: {error}")
    values["languages"] = tuple(languages)
    return Description(path=path, downloads=downloads, lines=lines, **values)


def _download(name: str, entry: Any) -> Download:
    """One entry of ``downloads``; a ``UserError`` says what is wrong with it."""
    if not isinstance(entry, dict) or not {"url"} <= entry.keys() <= {"url", "size", *DIGITS}:
        raise UserError(f"{name} must be a mapping with url and, if known, size, {', '.join(DIGITS)}")
    urls = entry["url"] if isinstance(entry["url"], list) else [entry["url"]]
    if not urls or not all(isinstance(url, str) and re.match(r"https?://", url) for url in urls):
        raise UserError(f"the url of {name} is {entry['url']!r}, but must be http(s)://…, or a list of such")
    size = entry.get("size")
    if size is not None and (not isinstance(size, int) or size < 1):
        raise UserError(f"the size of {name} is {size!r}, but must be a number of bytes")
    checksums = {algorithm: entry[algorithm] for algorithm in DIGITS if algorithm in entry}
    for algorithm, digest in checksums.items():
        if not re.fullmatch(f"[0-9a-f]{{{DIGITS[algorithm]}}}", str(digest)):
            raise UserError(f"the {algorithm} of {name} is not {DIGITS[algorithm]} hexadecimal digits")
    return Download(tuple(urls), size, checksums)


def _where(path: Path, lines: dict[str, int], key: str) -> str:
    return f"{path}, line {lines[key]}" if key in lines else str(path)


def _subsets(splits: dict[str, Any]) -> dict[str, str]:
    """Name of a split → fairseq's name: train, valid, test, test1, …"""
    tests = [name for name in splits if name not in ("train", "valid")]
    return {"train": "train", "valid": "valid", **{name: f"test{i or ''}" for i, name in enumerate(tests)}}


def _is_language(code: Any) -> bool:
    # An unquoted `no` is False in YAML; a hyphen or dot would be torn apart in fairseq's file names.
    return isinstance(code, str) and re.fullmatch("[A-Za-z_]+", code) is not None


def _load(path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """The top level of a YAML file, and the line each key stands on."""
    values, node = read_yaml(path)
    if not isinstance(values, dict):
        raise UserError(f"{path} must hold a mapping of keys to values; see data/README.md for the keys")
    lines: dict[str, int] = {}
    for key, _ in node.value:
        line = key.start_mark.line + 1
        if key.value in lines:
            raise UserError(
                f"{path}, line {line}: {key.value!r} was already given on line {lines[key.value]}"
            )
        lines[key.value] = line
    return values, lines
