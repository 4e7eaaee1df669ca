"""What a checkpoint translates: its corpus and its direction, checked against the corpus; without fairseq."""

from __future__ import annotations

import os
from pathlib import Path

from ..checkout import ROOT
from ..checkpoints import fingerprints_of, model_name, require_same, task_settings
from ..corpora import Corpus, load_corpus
from ..corpora.binarised import read_dictionary
from ..errors import UserError
from ..io import shown


def translation_direction(state: dict, checkpoint: Path, corpus: Corpus) -> tuple[str, str]:
    """The source and target language of a checkpoint; raises UserError unless it matches the corpus."""
    embeddings = {
        side: state["model"].get(f"{part}.embed_tokens.weight")
        for side, part in (("source", "encoder"), ("target", "decoder"))
    }
    task = task_settings(state)
    direction = task.get("source_lang"), task.get("target_lang")
    if embeddings["source"] is None or None in direction:
        raise UserError(f"{checkpoint} is of a {model_name(state)}, which is not a fairseq translation model")
    if sorted(map(str, direction)) != sorted(corpus.languages):
        raise UserError(
            f"{checkpoint} translates {direction[0]}-{direction[1]}, "
            f"but the languages of {corpus.name} are {' and '.join(corpus.languages)}"
        )
    sides = dict(zip(("source", "target"), direction))
    files = {side: corpus.bin / f"dict.{language}.txt" for side, language in sides.items()}
    dictionaries = {side: read_dictionary(corpus.bin, language) for side, language in sides.items()}
    pieces = corpus.pieces if corpus.pieces.is_file() else None
    require_same(state, checkpoint, fingerprints_of(dictionaries, files, pieces))
    for side, found in embeddings.items():
        symbols = len(dictionaries[side])
        if found is not None and (found.ndim != 2 or len(found) != symbols):
            trained = found.shape[0] if found.ndim else 0
            raise UserError(
                f"{checkpoint} was trained with {trained} symbols, but {corpus.name} is prepared with "
                f"{symbols} on the {side} side; prepare it with the --vocab-size used in training"
            )
    return direction


def corpus_of(state: dict, checkpoint: Path, name: str | None = None, data: Path | None = None) -> Corpus:
    """The prepared corpus that a checkpoint was trained on.

    ``name`` and ``data``, the folder of the corpora, are by default those in the checkpoint's settings, or
    else the folder ``data``.

    Raises:
        UserError: the checkpoint names no corpus, or the corpus is unknown or not prepared.
    """
    trained_on = str(task_settings(state).get("data") or "").split(os.pathsep)[0]
    folder = Path(trained_on)  # DATA/CORPUS/bin, relative to the root of the repository
    if folder.name != "bin" or len(folder.parts) < 2:
        if name is None:
            raise UserError(
                f"{checkpoint} does not name its corpus (its data are {shown(trained_on)}); give --corpus"
            )
    else:
        name = name or folder.parent.name
        prepared = (ROOT / folder).parent
        if data is None and prepared.name == name and (prepared / "bin" / "stamp.json").is_file():
            data = prepared.parent
    return load_corpus(name, data).require_prepared()
