"""Release archives in place of checkpoints."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..corpora import Corpus
from ..corpora.binarised import read_dictionary
from ..corpora.description import read_description
from ..corpora.segment import load_pieces
from ..errors import UserError
from .archive import CARD, CHECKPOINT, CHECKPOINTS, DESCRIPTION, Manifest, is_release, place_of, unpack

_MAX_DESCRIPTION = 1 << 16  # bytes; parsing YAML is slow


@contextmanager
def opened(paths: Sequence[Path]) -> Iterator[tuple[list[Path], Corpus | None]]:
    """Unpack the release archives among ``paths`` to a temporary folder, which lasts as long as the context.

    Within the context, error messages name an archive instead of this folder.

    Yields:
        The checkpoints, in order; and the corpus that the archives bring, with what preprocesses new text and
        nothing else. It is None if no path is an archive.

    Raises:
        UserError: an archive is damaged or hostile, or two archives preprocess text differently.

    Example::

        with opened([Path("de-en.tar")]) as (checkpoints, corpus):
            translator = open_translator(checkpoints, corpus)
    """
    checkpoints, corpus, first = [], None, None
    with tempfile.TemporaryDirectory(prefix="release-") as temporary:
        places = {Path(temporary) / str(number): path for number, path in enumerate(paths)}
        try:
            for folder, path in places.items():
                if not is_release(path):
                    checkpoints.append(path)
                    continue
                folder.mkdir()
                manifest = unpack(path, folder)
                found = _corpus(path, folder, manifest)
                if corpus is None or first is None:
                    corpus, first = found, (path, _preprocessing(manifest))
                elif _preprocessing(manifest) != first[1]:
                    raise UserError(
                        f"{path} and {first[0]} preprocess text differently; an ensemble needs models of the "
                        "same corpus, prepared once"
                    )
                checkpoints.append(folder / place_of(_checkpoint(manifest)))
            yield checkpoints, corpus
        except SystemExit as error:  # UserError, or what the guards make of it within fairseq
            if not isinstance(error.code, str):
                raise
            raise UserError(_named(error.code.removeprefix("error: "), places)) from None


def _named(message: str, places: dict[Path, Path]) -> str:
    for folder, path in places.items():
        message = message.replace(f"{folder}/", f"{path}/")
    return message


def _corpus(archive: Path, folder: Path, manifest: Manifest) -> Corpus:
    """The corpus of an unpacked archive, complete enough to preprocess new text."""
    checkpoint = _checkpoint(manifest)
    _require(archive, manifest, DESCRIPTION, checkpoint, CARD)
    if manifest.files[DESCRIPTION].bytes > _MAX_DESCRIPTION:
        raise UserError(f"{archive}: {DESCRIPTION} is too large for the description of a corpus")
    description = read_description(folder / DESCRIPTION)
    corpus = Corpus(manifest.corpus, folder, description)
    dictionaries = [f"dict.{language}.txt" for language in corpus.languages]
    needed = [DESCRIPTION, checkpoint, CARD, corpus.pieces.name, *dictionaries]
    _require(archive, manifest, *needed)
    others = [name for name in manifest.files if name not in needed and not name.endswith(".whl")]
    if others:
        raise UserError(f"{archive} contains {others[0]}, which does not belong to its corpus; do not use it")
    try:
        load_pieces(corpus.pieces)
        for language in corpus.languages:
            read_dictionary(corpus.bin, language)
    except UserError as error:  # it says how to prepare a corpus again
        raise UserError(f"{str(error).partition(';')[0]}; get the archive again") from None
    return corpus


def _checkpoint(manifest: Manifest) -> str:
    return next((name for name in CHECKPOINTS if name in manifest.files), CHECKPOINT)


def _require(archive: Path, manifest: Manifest, *names: str) -> None:
    missing = [name for name in names if name not in manifest.files]
    if missing:
        raise UserError(f"{archive} is not a whole release: it lacks {', '.join(missing)}")


def _preprocessing(manifest: Manifest) -> dict:
    """The files that determine how text is preprocessed."""
    return {
        name: entry
        for name, entry in manifest.files.items()
        if name not in (CARD, *CHECKPOINTS) and not name.endswith(".whl")
    }
