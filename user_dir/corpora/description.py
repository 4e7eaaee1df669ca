"""What ``corpus.yaml`` says about one corpus, checked."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ..errors import UserError


@dataclass(frozen=True)
class Download:
    """Where one raw file is published, and what it must hold."""

    url: str
    sha256: str | None = None  # of the content: what is inside, for a .gz


@dataclass(frozen=True)
class Description:
    """One ``corpus.yaml``.

    ``splits`` maps ``train``, ``valid`` and then each test set, by its public name and in order, to what
    the family of corpora reads it from: file names holding ``{language}``, or a number of pairs to generate.
    """

    path: Path
    title: str
    family: str
    languages: tuple[str, str]  # source, target
    splits: dict[str, Any]
    vocabulary_size: int
    licence: str = ""
    citation: str = ""
    character_coverage: float = 1.0
    normalization: str = "nmt_nfkc"
    options: dict[str, Any] = field(default_factory=dict)
    downloads: dict[str, Download] = field(default_factory=dict)

    @property
    def test_sets(self) -> dict[str, str]:
        """Public name of each test set → the subset fairseq knows it by: test, test1, test2, …"""
        return {name: subset for name, subset in _subsets(self.splits).items() if subset.startswith("test")}


# key → (type, how the type is called in a sentence, must it be given)
KEYS = {
    "title": (str, "a text", True),
    "family": (str, "a text", True),
    "languages": (list, "a list of two language codes", True),
    "splits": (dict, "a mapping", True),
    "vocabulary_size": (int, "a whole number", True),
    "licence": (str, "a text", False),
    "citation": (str, "a text", False),
    "character_coverage": ((int, float), "a number between 0 and 1", False),
    "normalization": (str, "a text", False),
    "options": (dict, "a mapping", False),
    "downloads": (dict, "a mapping", False),
}


def read_description(path: Path) -> Description:
    """Read and check ``path``; a ``UserError`` names the file, the line and the remedy."""
    values, lines = _load(path)

    def fail(key: str, complaint: str) -> None:
        where = f"{path}, line {lines[key]}" if key in lines else str(path)
        raise UserError(f"{where}: {complaint}")

    for key in values:
        if key not in KEYS:
            fail(key, f"unknown key {key!r}; the known ones are {', '.join(KEYS)}")
    for key, (kind, called, required) in KEYS.items():
        if key not in values:
            if required:
                fail(key, f"the key {key!r} is missing; give {called}")
        elif not isinstance(values[key], kind) or isinstance(values[key], bool):
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
    if values["vocabulary_size"] < 1:
        fail("vocabulary_size", f"vocabulary_size is {values['vocabulary_size']}, but must be positive")
    if not 0 < values.get("character_coverage", 1.0) <= 1:
        fail("character_coverage", f"character_coverage is {values['character_coverage']}, not in (0, 1]")
    downloads = {}
    for name, entry in values.pop("downloads", {}).items():
        if not isinstance(entry, dict) or not {"url"} <= entry.keys() <= {"url", "sha256"}:
            fail("downloads", f"downloads: {name} must be a mapping with url and, if known, sha256")
        if not re.fullmatch("[0-9a-f]{64}", str(entry.get("sha256", "0" * 64))):
            fail("downloads", f"downloads: the sha256 of {name} is not 64 hexadecimal digits")
        downloads[name] = Download(**entry)
    values["languages"] = tuple(languages)
    return Description(path=path, downloads=downloads, **values)


def _subsets(splits: dict[str, Any]) -> dict[str, str]:
    """Name of a split → fairseq's name: train, valid, test, test1, …"""
    tests = [name for name in splits if name not in ("train", "valid")]
    return {"train": "train", "valid": "valid", **{name: f"test{i or ''}" for i, name in enumerate(tests)}}


def _is_language(code: Any) -> bool:
    # An unquoted `no` is False in YAML; a hyphen or dot would be torn apart in fairseq's file names.
    return isinstance(code, str) and re.fullmatch("[A-Za-z_]+", code) is not None


def _load(path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """The top level of a YAML file, and the line each key stands on."""
    try:
        text = path.read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        values = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
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
