"""Fingerprints of a vocabulary: the symbols of dictionaries, and the file that splits text into pieces.

A model used with another vocabulary computes nonsense, also where the sizes fit. A checkpoint therefore keeps
the fingerprints of its training's vocabulary, and whatever uses the checkpoint compares them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .corpora.stamps import read_stamp
from .errors import UserError

KEY = "vocabulary"
"""Where a checkpoint keeps them: ``{"dictionaries": {NAME: SHA256}, "pieces": SHA256 or None}``."""
INSIDE = ("spm.model", "vocab.txt", "sentencepiece.bpe.model", "bpecodes", "code", "merges.txt")
"""Names of the pieces' file inside a data folder: ours, and those that fairseq's hub looks for."""
SHORT = 12  # digits of a fingerprint in an error message


@dataclass(frozen=True)
class Vocabulary:
    """A vocabulary as the data folder has it.

    Attributes:
        dictionaries: fingerprint of each dictionary, by side (``source``, ``target``) or language.
        sizes: number of symbols of each.
        pieces: fingerprint of the pieces' file; None if there is none.
        files: where each of them comes from, for error messages.
    """

    dictionaries: dict[str, str]
    sizes: dict[str, int]
    pieces: str | None = None
    files: dict[str, str] = field(default_factory=dict)

    def recorded(self) -> dict[str, Any]:
        """What a checkpoint keeps under :data:`KEY`."""
        return {"dictionaries": self.dictionaries, "pieces": self.pieces}


def fingerprints_of(
    dictionaries: Mapping[str, Any], files: Mapping[str, Path], pieces: Path | None
) -> Vocabulary:
    """The fingerprints of fairseq dictionaries, whose counts do not matter, and of the pieces' file.

    Args:
        dictionaries: by side or language; each has a length and symbols by index.
        files: of the dictionaries, by the same names.
        pieces: from :func:`pieces_file`.
    """
    places = {name: str(path) for name, path in files.items()}
    if pieces is not None:
        places["pieces"] = str(pieces)
    return Vocabulary(
        {name: _of_symbols(each) for name, each in dictionaries.items()},
        {name: len(each) for name, each in dictionaries.items()},
        None if pieces is None else fingerprint(pieces.read_bytes()),
        places,
    )


def _of_symbols(dictionary) -> str:
    symbols = "\n".join(dictionary[i] for i in range(len(dictionary)))
    return fingerprint(symbols.encode("utf-8", "surrogatepass"))


def fingerprint(content: bytes) -> str:
    """SHA-256 as 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def pieces_file(folder: Path) -> Path | None:
    """The file that splits the text of a data folder into pieces; None if only dictionaries are there.

    It is inside the folder, or, in a corpus by ``prepare.py`` and in a release, beside it.
    """
    parent = folder.parent
    places = [folder / name for name in INSIDE]
    if (parent / "corpus.yaml").is_file() or (parent / "bin" / "stamp.json").is_file():
        beside = [parent / "spm.model", parent / "text" / "tokenizer.json", parent / "text" / "vocab.txt"]
        stamp = read_stamp(parent / "spm.json")
        if stamp and "spm.model" not in stamp["outputs"]:  # left by an earlier preparation
            beside.reverse()
        places += beside
    return next((path for path in places if path.is_file()), None)


def recorded_in(state: dict, checkpoint: str | Path) -> dict[str, Any] | None:
    """The fingerprints in a checkpoint; None if it was written without.

    Raises:
        UserError: they are not as training writes them.
    """
    found = state.get(KEY)
    if found is None:
        return None
    sides = found.get("dictionaries") if isinstance(found, dict) else None
    digests = [*sides.values(), found.get("pieces") or "0" * 64] if isinstance(sides, dict) else [""]
    if not all(isinstance(each, str) and re.fullmatch("[0-9a-f]{64}", each) for each in digests):
        raise UserError(f"{checkpoint} is not a checkpoint that fairseq wrote: its {KEY} has no fingerprints")
    return found


def require_same(state: dict, checkpoint: str | Path, present: Vocabulary) -> None:
    """Raise UserError, which names both, if a checkpoint was trained with another vocabulary.

    What either lacks is not compared: a checkpoint written without fingerprints, or data without pieces.
    """
    recorded = recorded_in(state, checkpoint)
    if recorded is None:
        return
    theirs, ours = recorded["dictionaries"], present.dictionaries
    names = sorted(theirs.keys() & ours.keys())
    pairs = [(name, theirs[name], ours[name]) for name in names]
    if not names and not set(theirs.values()) & set(ours.values()):  # of one language pair and of several
        pairs = [(name, next(iter(theirs.values()), None), digest) for name, digest in ours.items()]
    for name, trained, given in [*pairs, ("pieces", recorded.get("pieces"), present.pieces)]:
        if None not in (trained, given) and trained != given:
            file = present.files.get(name, f"the {name} dictionary")
            raise UserError(
                f"{checkpoint} was trained with another vocabulary than that of {file} (fingerprint "
                f"{trained[:SHORT]} in training, {given[:SHORT]} now); use the data of its training, "
                "or train again: a corpus that was prepared again may have other pieces"
            )


def require_equal(state: dict, checkpoint: Path, other: dict, other_checkpoint: Path) -> None:
    """Raise UserError if two checkpoints were trained with different vocabularies."""
    one, two = recorded_in(state, checkpoint), recorded_in(other, other_checkpoint)
    if one is not None and two is not None and one != two:
        raise UserError(
            f"{checkpoint} and {other_checkpoint} were trained with different vocabularies (fingerprints "
            f"{_short(one)} and {_short(two)}); take checkpoints of one training"
        )


def _short(recorded: dict[str, Any]) -> str:
    digests = [*recorded["dictionaries"].values(), recorded["pieces"]]
    return fingerprint("".join(map(str, digests)).encode())[:SHORT]
