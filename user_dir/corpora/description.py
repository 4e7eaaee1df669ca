"""Reading and validation of ``corpus.yaml``, the description of a corpus."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from yaml import MappingNode, ScalarNode

from ..errors import UserError
from ..io import name_fault, read_yaml, shown
from .archives import split_name

MAX_LANGUAGE = 50  # keeps the name SUBSET.SOURCE-TARGET.SOURCE.bin below 255 characters
# Languages are used as file extensions, so extensions of other files are not allowed (in lower case):
RESERVED = {
    *("json", "log", "txt", "tok"),  # translations' scores, fairseq-generate's output, tokens
    *("bin", "idx", "out", "none"),  # binarised data; fairseq writes SOURCE-None for a single side
    *("part", "tmp"),  # incomplete files
    *("gz", "bz2", "xz", "tar", "tgz", "tbz", "tbz2", "txz", "zip"),  # read as compressed
    *("sgm", "sgml", "xml", "tmx"),  # read as another format
}
NORMALIZATIONS = ("nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity")  # sentencepiece's
MAX_INTEGER = 2**31 - 1  # integer limit of sentencepiece
BITS, DEPTH, VALUES = 63, 20, 100_000  # limits of a number, of nesting, of a description
DIGITS = {"sha256": 64, "sha1": 40, "md5": 32}
TRIPLET_SIDES = ("src", "mt", "pe")
"""The files of post-editing triplets: source, machine translation, post-edited translation."""


Lines = dict[tuple[str, ...], int]  # (key,) or (key, inner key) → line of the file


@dataclass(frozen=True)
class Download:
    """Where a raw file is published, and its expected size and checksums."""

    urls: tuple[str, ...]  # mirrors, tried in this order
    size: int | None = None  # bytes as downloaded
    checksums: dict[str, str] = field(default_factory=dict)  # keys of DIGITS; see checksums.py


@dataclass(frozen=True)
class Description:
    """One ``corpus.yaml``.

    ``splits`` maps ``train``, ``valid`` and then each test set, by its public name and in order, to the
    origin's settings: names of files, or a number of pairs to generate.
    """

    path: Path
    title: str
    languages: tuple[str, str]  # source, target
    splits: dict[str, Any]
    origin: str = "parallel_text"  # a key of raw_text.ORIGINS
    pieces_of: str | None = None  # another corpus whose pieces are used instead of learning them
    wordpiece: str | None = None  # file name of a BERT's vocab.txt; None: sentencepiece learns the pieces
    pretraining: list[Any] = field(default_factory=list)  # sources of the text for masked language modelling
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
    downloads: dict[str, Download] = field(default_factory=dict)
    lines: Lines = field(default_factory=dict, compare=False, repr=False)

    def error(self, key: str, complaint: str) -> UserError:
        """The error for a key, with file and line."""
        return UserError(f"{_where(self.path, self.lines, key)}: {complaint}")

    @property
    def triplets(self) -> bool:
        """Whether the corpus consists of post-editing triplets: a source line is ``src [SEP] mt``."""
        return self.origin == "triplets"

    @property
    def sides(self) -> tuple[str, ...]:
        """What the files of a split are named by: the languages, or :data:`TRIPLET_SIDES`."""
        return TRIPLET_SIDES if self.triplets else self.languages

    @property
    def placeholder(self) -> str:
        """What stands for a side in file names."""
        return "{side}" if self.triplets else "{language}"

    @property
    def test_sets(self) -> dict[str, str]:
        """Public name of each test set → its fairseq subset: test, test1, test2, …"""
        return {name: subset for name, subset in _subsets(self.splits).items() if subset.startswith("test")}


# key → (type, description of the type, required)
KEYS = {
    "title": (str, "text", True),
    "languages": (list, "a list of two language codes", True),
    "splits": (dict, "a mapping", True),
    "origin": (str, "text", False),
    "pieces_of": (str, "the name of a corpus", False),
    "wordpiece": (str, "a file name", False),
    "pretraining": (list, "a list of sources", False),
    "vocabulary_size": (int, "an integer", False),
    "licence": (str, "text", False),
    "citation": (str, "text", False),
    "character_coverage": ((int, float), "a number between 0 and 1", False),
    "byte_fallback": (bool, "true or false", False),
    "normalization": (str, "text", False),
    "learn_from": (int, "an integer", False),
    "clean": (dict, "a mapping", False),
    "normalise": (dict, "a mapping", False),
    "tokenised": (bool, "true or false", False),
    "sacrebleu": (dict, "a mapping", False),
    "downloads": (dict, "a mapping", False),
}


def read_description(path: Path) -> Description:
    """Read and validate ``path``; a UserError names the file, the line and the remedy."""
    values, lines = _load(path)

    def fail(key: str, complaint: str, inner: Any = None) -> None:
        raise UserError(f"{_where(path, lines, key, inner)}: {complaint}")

    def require_name(name: Any, key: str, called: str, inner: Any, folders: bool = False) -> None:
        fault = name_fault(name, folders)
        if fault is not None:
            remedy = "use a plain relative name" if isinstance(name, str) else "write it in quotes"
            fail(key, f"{key}: {called} {shown(name)} {fault}; {remedy}", inner)

    def require_files(value: Any, key: str, of: str, inner: Any = None) -> None:
        for file in _file_names(value):
            archive, member = split_name(file)
            require_name(archive, key, f"the file {of}", inner, folders=True)
            if member is None:
                continue
            require_name(member, key, f"the member {of}", inner, folders=True)
            if re.match(r"stamp[./]|stamp$", member):
                fail(key, f"{key}: {archive} has a member {member}, which is a reserved name", inner)

    for key in values:
        if key not in KEYS:
            fail(key, f"unknown key {key!r}; choose from {', '.join(KEYS)}")
    for key, (kind, called, required) in KEYS.items():
        if key not in values:
            if required:
                fail(key, f"the key {key!r} is missing; expected {called}")
        elif not isinstance(values[key], kind) or isinstance(values[key], bool) != (kind is bool):
            fail(key, f"{key} is {values[key]!r}, but must be {called}")

    languages = values["languages"]
    if len(languages) != 2 or not all(_is_language(language) for language in languages):
        fail("languages", f"languages is {shown(languages)}, but must be two codes such as [de, en]")
    for language in languages:
        if language.lower() in RESERVED:
            fail("languages", f"languages: {language!r} is the extension of other files; use another code")
    if languages[0] == languages[1]:
        fail("languages", f"languages names {languages[0]!r} twice; they must differ")
    if not {"train", "valid"} <= values["splits"].keys():
        fail("splits", f"splits has {', '.join(map(str, values['splits']))}; expected train and valid")
    for name in values["splits"]:
        require_name(name, "splits", "the name", name)
        # Corpus.text accepts public and fairseq names of test sets, so they must not conflict.
        if re.fullmatch(r"test\d*", name) and _subsets(values["splits"])[name] != name:
            fail(
                "splits",
                f"splits: {name!r} is reserved: test, test1, test2 and so on are fairseq's names of the test "
                f"sets, in order, and this one is its {_subsets(values['splits'])[name]}; rename it",
            )
        if values.get("tokenised") and f"{name}.tok" in values["splits"]:
            fail(
                "splits", f"splits: the tokens of {name} would be named like the split {name}.tok; rename it"
            )
        require_files(values["splits"][name], "splits", f"of {name},", name)
    require_files(values.get("pretraining", []), "pretraining", "of pretraining,")
    if "pieces_of" in values:
        require_name(values["pieces_of"], "pieces_of", "the corpus", None)
        for other in ("wordpiece", "vocabulary_size"):
            if other in values:
                fail(other, f"{other}: the pieces are those of {values['pieces_of']}; omit it")
    if "wordpiece" in values:
        require_name(values["wordpiece"], "wordpiece", "the file", None, folders=True)
    for key in ("vocabulary_size", "learn_from"):
        if not 1 <= values.get(key, 1) <= MAX_INTEGER:
            fail(key, f"{key} is {values[key]}, but must be from 1 to {MAX_INTEGER}")
    if values.get("normalization", "identity") not in NORMALIZATIONS:
        known = ", ".join(NORMALIZATIONS)
        fail("normalization", f"normalization is {shown(values['normalization'])}; choose from {known}")
    if not 0 < values.get("character_coverage", 1.0) <= 1:
        fail("character_coverage", f"character_coverage is {values['character_coverage']}, not in (0, 1]")
    for name, theirs in values.get("sacrebleu", {}).items():
        if name not in values["splits"]:
            fail("sacrebleu", f"sacrebleu: splits has no test set {shown(name)}", name)
        require_name(theirs, "sacrebleu", f"the name of {name},", name, folders=True)
    downloads = {}
    for name, entry in values.pop("downloads", {}).items():
        require_name(name, "downloads", "the name", name, folders=True)
        if name.endswith(".part"):
            fail("downloads", f"downloads: {name} has the extension of unfinished downloads; rename it", name)
        try:
            downloads[name] = _download(name, entry)
        except UserError as error:
            fail("downloads", f"downloads: {error}", name)
    values["languages"] = tuple(languages)
    return Description(path=path, downloads=downloads, lines=lines, **values)


def _download(name: str, entry: Any) -> Download:
    """Validate an entry of ``downloads``; raises UserError."""
    if not isinstance(entry, dict) or not {"url"} <= entry.keys() <= {"url", "size", *DIGITS}:
        raise UserError(f"{name} must be a mapping with url and, optionally, size, {', '.join(DIGITS)}")
    urls = entry["url"] if isinstance(entry["url"], list) else [entry["url"]]
    if not urls or not all(map(_is_url, urls)):
        raise UserError(
            f"the url of {name} is {shown(entry['url'])}, but must be http(s)://… in ASCII, or a list of URLs"
        )
    size = entry.get("size")
    if size is not None and (not isinstance(size, int) or size < 1):
        raise UserError(f"the size of {name} is {size!r}, but must be a number of bytes")
    checksums = {algorithm: entry[algorithm] for algorithm in DIGITS if algorithm in entry}
    for algorithm, digest in checksums.items():
        if not re.fullmatch(f"[0-9a-f]{{{DIGITS[algorithm]}}}", str(digest)):
            raise UserError(f"the {algorithm} of {name} is not {DIGITS[algorithm]} hexadecimal digits")
    return Download(tuple(urls), size, checksums)


def _is_url(url: Any) -> bool:
    """Whether this is a syntactically valid URL."""
    if not isinstance(url, str) or not re.fullmatch(r"https?://[!-~]+", url):
        return False
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:  # invalid brackets or port
        return False


def _file_names(value: Any) -> Iterator[str]:
    """All file names in the settings of a split, with ``{language}`` not yet replaced."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _file_names(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key not in ("format", "lines", "columns", "separator"):
                yield from _file_names(each)


def _where(path: Path, lines: Lines, key: str, inner: Any = None) -> str:
    """The file, and the line of ``inner`` within ``key``, or of ``key``, if known."""
    line = lines.get((key, inner), lines.get((key,)))
    return str(path) if line is None else f"{path}, line {line}"


def _subsets(splits: dict[str, Any]) -> dict[str, str]:
    """Name of a split → fairseq's name: train, valid, test, test1, …"""
    tests = [name for name in splits if name not in ("train", "valid")]
    return {"train": "train", "valid": "valid", **{name: f"test{i or ''}" for i, name in enumerate(tests)}}


def _is_language(code: Any) -> bool:
    # An unquoted `no` is False in YAML; fairseq's file names are split at hyphens and dots.
    whole = isinstance(code, str) and re.fullmatch("[A-Za-z][A-Za-z0-9_]*", code) is not None
    return whole and len(code) <= MAX_LANGUAGE


def _require_small(path: Path, values: dict[str, Any]) -> None:
    """Raise UserError for values that no description needs but that would cause trouble later.

    These are integers beyond 64 bits and, by means of YAML aliases, unbounded nesting or numbers of values.
    """
    waiting, count = [(values, 0)], 0
    while waiting:
        value, depth = waiting.pop()
        count += 1
        if depth > DEPTH or count > VALUES:
            raise UserError(f"{path} is too large for the description of a corpus; check its YAML aliases")
        if isinstance(value, int) and value.bit_length() > BITS:
            raise UserError(f"{path} has a number of {value.bit_length()} bits; at most {BITS} are allowed")
        if isinstance(value, (dict, list, tuple, set)):
            inner = [*value.keys(), *value.values()] if isinstance(value, dict) else value
            waiting += [(each, depth + 1) for each in inner]


def _load(path: Path) -> tuple[dict[str, Any], Lines]:
    """The content of a YAML file, and the lines of its keys of the first two levels."""
    values, node = read_yaml(path)
    if not isinstance(values, dict):
        raise UserError(f"{path} must be a mapping of keys to values; see data/README.md for the keys")
    _require_small(path, values)
    lines: Lines = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if (key.value,) in lines:
            raise UserError(
                f"{path}, line {line}: {key.value!r} is a duplicate of line {lines[(key.value,)]}"
            )
        lines[(key.value,)] = line
        for inner, _ in value.value if isinstance(value, MappingNode) else ():
            if isinstance(inner, ScalarNode):
                lines[key.value, inner.value] = inner.start_mark.line + 1
    return values, lines
