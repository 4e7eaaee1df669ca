"""Building the archive of a trained model."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..checkpoints import for_inference, load_checkpoint, model_settings, num_updates
from ..corpora import Corpus
from ..corpora.checksums import sha256
from ..decoding.alphas import alphas_of
from ..decoding.from_state import Unknown
from ..eight_bits import is_rounded, packed
from ..guards.released_files import ALPHAS
from ..io import copy_file, unchanged
from ..safetensors_checkpoints import write_safetensors
from ..translation.direction import translation_direction
from ..translation.limits import RELEASED, Limit, translation_limit
from ..translation.loading import load_model
from .archive import CARD, CHECKPOINT, DESCRIPTION, Manifest, write_archive
from .card import model_card
from .opened import opened
from .scores import read_scores
from .wheel import build_wheel


@dataclass(frozen=True)
class Release:
    """An archive that was written: what it contains, its SHA-256, and the test sets it has scores of."""

    manifest: Manifest
    sha256: str
    scored: list[str]


def write_release(
    checkpoint: Path, corpus: Corpus, evaluation: Path, output: Path, extra: Mapping[str, str] | None = None
) -> Release:
    """Write the archive of a model; the same input gives the same bytes.

    Parameters that were rounded to 8 bits (:func:`~user_dir.eight_bits.rounded`) take 8 bits, exactly.

    Args:
        checkpoint: of a fairseq translation model.
        corpus: the prepared corpus that it was trained on.
        evaluation: folder of evaluate.py's scores of this checkpoint, if there is one.
        output: archive to write.
        extra: goes into the checkpoint's ``extra_state``.

    Raises:
        UserError: the checkpoint does not match the corpus, the scores are not of this checkpoint, or the
            wheel cannot be built.
    """
    with unchanged(checkpoint):
        state = load_checkpoint(checkpoint)
        direction = translation_direction(state, checkpoint, corpus)
        scores = read_scores(evaluation, checkpoint, corpus, direction)
        model, _ = load_model(checkpoint, corpus, direction, cpu=True)
    parameters = sum(each.numel() for each in model.parameters())
    state = released_state(state, translation_limit(state, corpus), extra)
    with tempfile.TemporaryDirectory() as temporary:
        wheel = build_wheel(Path(temporary))
        eight_bits = is_rounded(state["model"])
        reduced = Path(temporary) / CHECKPOINT
        write_safetensors(packed(state) if eight_bits else state, reduced)
        card = model_card(state, corpus, direction, parameters, scores, wheel.name, eight_bits=eight_bits)
        dictionaries = [corpus.bin / f"dict.{language}.txt" for language in corpus.languages]
        files = {
            CARD: card.encode(),
            DESCRIPTION: corpus.description.path.read_bytes(),
            reduced.name: reduced.read_bytes(),
            **{path.name: path.read_bytes() for path in (corpus.pieces, *dictionaries, wheel)},
        }
        archive = Path(temporary) / output.name
        manifest = write_archive(corpus.name, files, archive)
        with opened([archive]):  # before anybody else tries to
            copy_file(archive, output)
    return Release(manifest, sha256(output), [each["test_set"] for each in scores])


def released_state(state: dict, limit: Limit, extra: Mapping[str, str] | None = None) -> dict:
    """A checkpoint as an archive has it, with all that translating by the search in C++ needs.

    Args:
        state: of the checkpoint; it is not changed.
        limit: of the length of translations; the archive has no training text to find it in.
        extra: goes into ``extra_state``.
    """
    state = for_inference(state)
    state["extra_state"][RELEASED] = limit.b
    with suppress(Unknown):  # then fairseq translates
        state["extra_state"][ALPHAS] = alphas_of(state["model"], model_settings(state), num_updates(state))
    state["extra_state"].update(extra or {})
    return state
