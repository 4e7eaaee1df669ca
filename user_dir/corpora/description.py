"""What ``corpus.yaml`` says about one corpus, checked."""

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

LONGEST_LANGUAGE = 50  # so that SUBSET.SOURCE-TARGET.SOURCE.bin is a name of less than 255 characters
# A language is the ending of file names. Taken as endings, in lower case, are:
RESERVED = {
    *("json", "log", "txt", "tok"),  # beside translations: scores, fairseq-generate's output, tokens
    *("bin", "idx", "out", "none"),  # beside binarised data; fairseq writes SOURCE-None for a single side
    *("part", "tmp"),  # what is not whole yet
    *("gz", "xz", "tar", "tgz", "tbz", "txz", "zip"),  # read as packed
    *("sgm", "sgml", "xml", "tmx"),  # read as another format
}
NORMALIZATIONS = ("nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity")  # sentencepiece's
LARGEST = 2**31 - 1  # of sentencepiece's numbers
BITS, DEPTH, VALUES = 63, 20, 100_000  # of a number, of nesting, of a description
DIGITS = {"sha256": 64, "sha1": 40, "md5": 32}


Lines = dict[tuple[str, ...], int]  # (key,) or (key, key within it) → line of the file


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
    its origin reads it from: names of files, or a number of pairs to generate.
    """

    path: Path
    title: str
    languages: tuple[str, str]  # source, target
    splits: dict[str, Any]
    origin: str = "parallel_text"  # a key of origins.ORIGINS
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
    lines: Lines = field(default_factory=dict, compare=False, repr=False)

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
    "origin": (str, "a text", False),
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

    def fail(key: str, complaint: str, inner: Any = None) -> None:
        raise UserError(f"{_where(path, lines, key, inner)}: {complaint}")

    def require_name(name: Any, key: str, called: str, inner: Any, folders: bool = False) -> None:
        fault = name_fault(name, folders)
        if fault is not None:
            remedy = "give a plain relative name" if isinstance(name, str) else "write it in quotes"
            fail(key, f"{key}: {called} {shown(name)} {fault}; {remedy}", inner)

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
        fail("languages", f"languages is {shown(languages)}, but must be two codes such as [de, en]")
    for language in languages:
        if language.lower() in RESERVED:
            fail("languages", f"languages: {language!r} is the ending of other files; give another code")
    if languages[0] == languages[1]:
        fail("languages", f"languages names {languages[0]!r} twice; give source and target")
    if not {"train", "valid"} < values["splits"].keys():
        fail(
            "splits", f"splits has {', '.join(map(str, values['splits']))}; give train, valid and a test set"
        )
    for name in values["splits"]:
        require_name(name, "splits", "the name", name)
        # Corpus.text takes a test set's own name and fairseq's, so they must not be crossed.
        if re.fullmatch(r"test\d*", name) and _subsets(values["splits"])[name] != name:
            fail("splits", f"splits: {name} would be fairseq's {_subsets(values['splits'])[name]}; rename it")
        if values.get("tokenised") and f"{name}.tok" in values["splits"]:
            fail("splits", f"splits: the tokens of {name} would be named as the split {name}.tok; rename it")
        for file in _file_names(values["splits"][name]):
            archive, member = split_name(file)
            require_name(archive, "splits", f"{name} is read from a file whose name", name, folders=True)
            if member is not None:
                require_name(member, "splits", f"{name} is read from a member whose name", name, folders=True)
                if re.match(r"stamp[./]|stamp$", member):
                    fail(
                        "splits",
                        f"splits: {name}: {archive} cannot have a member {member}, a name we use",
                        name,
                    )
    for key in ("vocabulary_size", "learn_from"):
        if not 1 <= values.get(key, 1) <= LARGEST:
            fail(key, f"{key} is {values[key]}, but must be positive, and at most {LARGEST}")
    if values.get("normalization", "identity") not in NORMALIZATIONS:
        known = ", ".join(NORMALIZATIONS)
        fail("normalization", f"normalization is {shown(values['normalization'])}; there are {known}")
    if not 0 < values.get("character_coverage", 1.0) <= 1:
        fail("character_coverage", f"character_coverage is {values['character_coverage']}, not in (0, 1]")
    for name, theirs in values.get("sacrebleu", {}).items():
        if name not in values["splits"]:
            fail("sacrebleu", f"sacrebleu: there is no test set {shown(name)} under splits", name)
        require_name(theirs, "sacrebleu", f"its name of {name}, which is", name, folders=True)
    downloads = {}
    for name, entry in values.pop("downloads", {}).items():
        require_name(name, "downloads", "the name", name, folders=True)
        if name.endswith(".part"):
            fail("downloads", f"downloads: {name} would be named as an unfinished download; rename it", name)
        try:
            downloads[name] = _download(name, entry)
        except UserError as error:
            fail("downloads", f"downloads: {error}", name)
    values["languages"] = tuple(languages)
    return Description(path=path, downloads=downloads, lines=lines, **values)


def _download(name: str, entry: Any) -> Download:
    """One entry of ``downloads``; a ``UserError`` says what is wrong with it."""
    if not isinstance(entry, dict) or not {"url"} <= entry.keys() <= {"url", "size", *DIGITS}:
        raise UserError(f"{name} must be a mapping with url and, if known, size, {', '.join(DIGITS)}")
    urls = entry["url"] if isinstance(entry["url"], list) else [entry["url"]]
    if not urls or not all(map(_is_url, urls)):
        raise UserError(
            f"the url of {name} is {shown(entry['url'])}, but must be http(s)://… in ASCII, or a list of such"
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
    """Whether it is an address that can be asked; whether anyone answers is another matter."""
    if not isinstance(url, str) or not re.fullmatch(r"https?://[!-~]+", url):
        return False
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:  # brackets that enclose no address, a port that is no number
        return False


def _file_names(value: Any) -> Iterator[str]:
    """Every text within what a split is read from that names a file, ``{language}`` still in it."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _file_names(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key != "format":
                yield from _file_names(each)


def _where(path: Path, lines: Lines, key: str, inner: Any = None) -> str:
    """The file, and the line of ``inner`` under ``key``, or of ``key``, as far as they are known."""
    line = lines.get((key, inner), lines.get((key,)))
    return str(path) if line is None else f"{path}, line {line}"


def _subsets(splits: dict[str, Any]) -> dict[str, str]:
    """Name of a split → fairseq's name: train, valid, test, test1, …"""
    tests = [name for name in splits if name not in ("train", "valid")]
    return {"train": "train", "valid": "valid", **{name: f"test{i or ''}" for i, name in enumerate(tests)}}


def _is_language(code: Any) -> bool:
    # An unquoted `no` is False in YAML; a hyphen or dot would be torn apart in fairseq's file names.
    whole = isinstance(code, str) and re.fullmatch("[A-Za-z_]+", code) is not None
    return whole and len(code) <= LONGEST_LANGUAGE


def _require_small(path: Path, values: dict[str, Any]) -> None:
    """Raise a ``UserError`` over what no description needs and much of what follows could not bear.

    That is a number beyond 64 bits and, by way of YAML's aliases, nesting without end or values without end.
    """
    waiting, count = [(values, 0)], 0
    while waiting:
        value, depth = waiting.pop()
        count += 1
        if depth > DEPTH or count > VALUES:
            raise UserError(
                f"{path} says more than any description of a corpus; look at YAML's aliases in it"
            )
        if isinstance(value, int) and value.bit_length() > BITS:
            raise UserError(f"{path} has a number of {value.bit_length()} bits; give one of at most {BITS}")
        if isinstance(value, (dict, list, tuple, set)):
            inner = [*value.keys(), *value.values()] if isinstance(value, dict) else value
            waiting += [(each, depth + 1) for each in inner]


def _load(path: Path) -> tuple[dict[str, Any], Lines]:
    """What a YAML file holds, and the lines that its keys and those one level below stand on."""
    values, node = read_yaml(path)
    if not isinstance(values, dict):
        raise UserError(f"{path} must hold a mapping of keys to values; see data/README.md for the keys")
    _require_small(path, values)
    lines: Lines = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if (key.value,) in lines:
            raise UserError(
                f"{path}, line {line}: {key.value!r} was already given on line {lines[(key.value,)]}"
            )
        lines[(key.value,)] = line
        for inner, _ in value.value if isinstance(value, MappingNode) else ():
            if isinstance(inner, ScalarNode):
                lines[key.value, inner.value] = inner.start_mark.line + 1
    return values, lines
