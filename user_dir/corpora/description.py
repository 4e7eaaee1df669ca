"""Reading and validation of ``corpus.yaml``, the description of a corpus."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct, structs

from ..errors import UserError
from ..faults import Fault
from ..io import name_fault, shown
from ..languages import Language
from ..languages import language as language_of
from ..schema import pattern, whole
from ..yaml_files import line_of, read_yaml_as
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
MAX_INTEGER = 2**31 - 1  # integer limit of sentencepiece
EVERY = "every"  # the key of ``normalise`` for steps of all splits
TRIPLET_SIDES = ("src", "mt", "pe")
"""The files of post-editing triplets: source, machine translation, post-edited translation."""
Code = pattern(
    f"[A-Za-z][A-Za-z0-9_]{{0,{MAX_LANGUAGE - 1}}}",
    f"a language's code such as de, of at most {MAX_LANGUAGE} letters, digits and _; quote one like no",
)
Integer = whole(1, MAX_INTEGER)


_FROM_ONE = Meta(ge=1, le=MAX_INTEGER, description="a number from 1")
_COVERAGE = Meta(gt=0, le=1, description="a number above 0 and at most 1")
Ratio = Annotated[int, _FROM_ONE] | Annotated[float, _FROM_ONE]  # 2 stays 2, also in stamps
Coverage = Annotated[int, _COVERAGE] | Annotated[float, _COVERAGE]
Step = Literal["punctuation", "non_printing", "lower_case"]  # a key of normalising.STEPS


class Limit(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of the lengths of a pair, counted in some unit."""

    min: Integer = 1
    max: Integer | Annotated[list[Integer], Meta(min_length=2, max_length=2)] | None = None
    ratio: Ratio | None = None


class Clean(Struct, frozen=True, forbid_unknown_fields=True):
    """Which pairs of training text are left out; limits by unit, a key of cleaning.UNITS."""

    words: Limit | None = None
    moses_tokens: Limit | None = None
    pieces: Limit | None = None
    near_duplicates: bool = False


class Download(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a raw file is published, and its expected size and checksums."""

    url: str | Annotated[list[str], Meta(min_length=1)]  # or mirrors, tried in this order
    size: whole(1) | None = None  # bytes as downloaded
    sha256: pattern("[0-9a-f]{64}", "64 hexadecimal digits") | None = None  # see checksums.py
    sha1: pattern("[0-9a-f]{40}", "40 hexadecimal digits") | None = None
    md5: pattern("[0-9a-f]{32}", "32 hexadecimal digits") | None = None

    def __post_init__(self) -> None:
        for url in self.urls:
            if not _is_url(url):
                raise ValueError(f"url is {shown(url)}, but must be http(s)://… in ASCII")

    @property
    def urls(self) -> tuple[str, ...]:
        """The mirrors."""
        return (self.url,) if isinstance(self.url, str) else tuple(self.url)

    @property
    def checksums(self) -> dict[str, str]:
        """The checksums by algorithm."""
        found = {"sha256": self.sha256, "sha1": self.sha1, "md5": self.md5}
        return {name: digest for name, digest in found.items() if digest is not None}


class Keys(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The keys of a ``corpus.yaml``.

    ``splits`` maps ``train``, ``valid`` and then each test set, by its public name and in order, to the
    origin's settings: names of files, or a number of pairs to generate.
    """

    title: str
    languages: tuple[Code, Code]  # source, target
    splits: dict[str, Any]
    origin: str = "parallel_text"  # a key of raw_text.ORIGINS
    pieces_of: str | None = None  # another corpus whose pieces are used instead of learning them
    wordpiece: str | None = (
        None  # a BERT's vocab.txt or tokenizer.json; None: sentencepiece learns the pieces
    )
    pretraining: list[Any] = []  # sources of the text for masked language modelling
    vocabulary_size: Integer | None = None  # entries; None: learning.suitable_size
    licence: str = ""
    citation: str = ""
    character_coverage: Coverage = 1.0
    byte_fallback: bool = False
    normalization: Literal["nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity"] = "nmt_nfkc"
    learn_from: Integer = 1_000_000
    clean: Clean = Clean()
    normalise: dict[str, list[Step]] = {}  # by split, or EVERY
    tokenised: bool = False
    case: Literal["from_translation"] | None = None  # of triplets, see translation/casing.py
    sacrebleu: dict[str, str] = {}
    downloads: dict[str, Download] = {}


class Description(Keys, frozen=True, kw_only=True):
    """One ``corpus.yaml``."""

    path: Path
    lines: dict[str, int] = {}  # of its keys

    def error(self, key: str, complaint: str) -> UserError:
        """The error for a key, with file and line."""
        line = f", line {self.lines[key]}" if key in self.lines else ""
        return UserError(f"{self.path}{line}: {complaint}")

    @property
    def triplets(self) -> bool:
        """Whether the corpus consists of post-editing triplets: a source line is ``src [SEP] mt``."""
        return self.origin == "triplets"

    @property
    def sides(self) -> tuple[str, ...]:
        """What the files of a split are named by: the languages, or :data:`TRIPLET_SIDES`."""
        return TRIPLET_SIDES if self.triplets else self.languages

    @property
    def parts(self) -> dict[str, tuple[str, ...]]:
        """Of which of the sides a line of each language consists."""
        if self.triplets:
            return dict(zip(self.languages, (TRIPLET_SIDES[:2], TRIPLET_SIDES[2:])))
        return {language: (language,) for language in self.languages}

    def language_of(self, side: str) -> Language:
        """The language of one of the sides."""
        code = next(code for code, parts in self.parts.items() if side in parts)
        return language_of(self.languages[1] if side == "mt" and self.triplets else code)

    @property
    def placeholder(self) -> str:
        """What stands for a side in file names."""
        return "{side}" if self.triplets else "{language}"

    @property
    def test_sets(self) -> dict[str, str]:
        """Public name of each test set → its fairseq subset: test, test1, test2, …"""
        return {name: subset for name, subset in _subsets(self.splits).items() if subset.startswith("test")}


def read_description(path: Path) -> Description:
    """Read and validate ``path``; a UserError names the file, the line and the remedy."""
    keys, node = read_yaml_as(path, Keys)
    lines = {key.value: key.start_mark.line + 1 for key, _ in node.value}
    for steps, message in chain(_languages(keys), _splits(keys), _pieces(keys, lines), _other_names(keys)):
        raise UserError(f"{line_of(path, node, steps)}: {message}")
    return Description(path=path, lines=lines, **structs.asdict(keys))


def _languages(keys: Keys) -> Iterator[Fault]:
    for language in keys.languages:
        if language.lower() in RESERVED:
            complaint = f"languages: {language!r} is the extension of other files; use another code"
            yield Fault(("languages",), complaint)
    if len(set(keys.languages)) < 2:
        yield Fault(("languages",), f"languages names {keys.languages[0]!r} twice; they must differ")


def _splits(keys: Keys) -> Iterator[Fault]:
    """What is wrong with the names of splits and of their files."""
    if not {"train", "valid"} <= keys.splits.keys():
        yield Fault(("splits",), f"splits has {', '.join(keys.splits)}; expected train and valid")
    for name, subset in _subsets(keys.splits).items():
        yield from _name(name, "splits", "the name", name)
        # Corpus.text accepts public and fairseq names of test sets, so they must not conflict.
        if re.fullmatch(r"test\d*", name) and subset != name:
            yield Fault(
                ("splits", name),
                f"splits: {name!r} is reserved: test, test1, test2 and so on are fairseq's names of the test "
                f"sets, in order, and this one is its {subset}; rename it",
            )
        if keys.tokenised and f"{name}.tok" in keys.splits:
            complaint = f"splits: the tokens of {name} would be named like the split {name}.tok; rename it"
            yield Fault(("splits", f"{name}.tok"), complaint)
        yield from _files(keys.splits.get(name), "splits", f"of {name},", name)
    yield from _files(keys.pretraining, "pretraining", "of pretraining,")
    for name in keys.normalise:
        if name not in (known := (EVERY, *keys.splits)):
            complaint = f"normalise: unknown split {shown(name)}; choose from {', '.join(known)}"
            yield Fault(("normalise", name), complaint)


def _pieces(keys: Keys, given: dict[str, int]) -> Iterator[Fault]:
    if keys.pieces_of is not None:
        yield from _name(keys.pieces_of, "pieces_of", "the corpus")
        for other in ("wordpiece", "vocabulary_size"):
            if other in given:
                yield Fault((other,), f"{other}: the pieces are those of {keys.pieces_of}; omit it")
    if keys.case is not None and keys.origin != "triplets":
        complaint = "case: there is a machine translation only in triplets (origin: triplets); omit it"
        yield Fault(("case",), complaint)
    if keys.wordpiece is not None:
        yield from _name(keys.wordpiece, "wordpiece", "the file", folders=True)


def _other_names(keys: Keys) -> Iterator[Fault]:
    for name, theirs in keys.sacrebleu.items():
        if name not in keys.splits:
            yield Fault(("sacrebleu", name), f"sacrebleu: splits has no test set {shown(name)}")
        yield from _name(theirs, "sacrebleu", f"the name of {name},", name, folders=True)
    for name in keys.downloads:
        yield from _name(name, "downloads", "the name", name, folders=True)
        if name.endswith(".part"):
            complaint = f"downloads: {name} has the extension of unfinished downloads; rename it"
            yield Fault(("downloads", name), complaint)


def _name(name: str, key: str, called: str, *inner: str, folders: bool = False) -> Iterator[Fault]:
    fault = name_fault(name, folders)
    if fault is not None:
        yield Fault((key, *inner), f"{key}: {called} {shown(name)} {fault}; use a plain relative name")


def _files(value: Any, key: str, of: str, *inner: str) -> Iterator[Fault]:
    """What is wrong with the names of the files in the settings of a split."""
    for file in _file_names(value):
        archive, member = split_name(file)
        yield from _name(archive, key, f"the file {of}", *inner, folders=True)
        if member is not None:
            yield from _name(member, key, f"the member {of}", *inner, folders=True)
            if re.match(r"stamp[./]|stamp$", member):
                complaint = f"{key}: {archive} has a member {member}, which is a reserved name"
                yield Fault((key, *inner), complaint)


def _is_url(url: str) -> bool:
    """Whether this is a syntactically valid URL."""
    if not re.fullmatch(r"https?://[!-~]+", url):
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


def _subsets(splits: dict[str, Any]) -> dict[str, str]:
    """Name of a split → fairseq's name: train, valid, test, test1, …"""
    tests = [name for name in splits if name not in ("train", "valid")]
    return {"train": "train", "valid": "valid", **{name: f"test{i or ''}" for i, name in enumerate(tests)}}
