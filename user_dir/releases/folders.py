"""What all exports of a model have in common: a new folder, for programs that do not know this package."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fairseq.tasks.translation import TranslationTask
from torch import nn

from ..checkpoints import load_checkpoint
from ..corpora import Corpus
from ..corpora.normalising import steps_of_new_text
from ..errors import UserError
from ..io import make_folder
from ..translation.direction import translation_direction
from ..translation.limits import translation_limit
from ..translation.loading import load_model

MAX_ERROR = 1e-3  # of log-probabilities, with float32's rounding in all layers


@dataclass(frozen=True)
class Exported:
    """A model to be exported; ``limit`` is the greatest number of pieces of a translation."""

    checkpoint: Path
    corpus: Corpus
    model: nn.Module
    task: TranslationTask
    direction: tuple[str, str]
    limit: int


def model_to_export(
    checkpoint: Path, corpus: Corpus, to: str, unsupported_model: Callable[[nn.Module], str | None]
) -> Exported:
    """Load a model; raises UserError, naming what it or its corpus has that cannot be exported.

    Args:
        checkpoint: of a translation model.
        corpus: the prepared corpus that it was trained on.
        to: what it is exported to.
        unsupported_model: why a model cannot be exported to it; None if it can.
    """
    state = load_checkpoint(checkpoint)
    direction = translation_direction(state, checkpoint, corpus)
    model, task = load_model(checkpoint, corpus, direction, cpu=True)
    reason = unsupported_corpus(corpus) or unsupported_model(model)
    if reason is not None:
        raise UserError(f"{checkpoint} cannot be exported to {to}: {reason}")
    limit = min(translation_limit(state, corpus).b, model.max_positions()[1] - 1)
    return Exported(checkpoint, corpus, model, task, direction, limit)


def unsupported_corpus(corpus: Corpus) -> str | None:
    """What has to be done to text beside sentencepiece; None if nothing."""
    description = corpus.description
    if corpus.pieces.suffix != ".model":
        return "its pieces are not of sentencepiece"
    if description.triplets:
        return "it is a post-editor"
    if description.tokenised:
        return f"{corpus.name} is released as tokens"
    steps = steps_of_new_text(description)
    return f"{corpus.name} normalises text ({', '.join(steps)})" if steps else None


@contextmanager
def new_folder(output: Path, extra: str, modules: Collection[str]) -> Iterator[Path]:
    """Yield a folder to fill, which becomes ``output`` if nothing goes wrong.

    Raises:
        UserError: it cannot be written; or one of ``modules``, which the ``extra`` of the package brings, is
            not installed.
    """
    make_folder(output.parent)
    try:
        with tempfile.TemporaryDirectory(dir=output.parent) as temporary:
            folder = Path(temporary) / output.name
            folder.mkdir()
            yield folder
            folder.rename(output)
    except OSError as error:
        raise UserError(f"cannot write {output}: {error.strerror or error}") from None
    except ModuleNotFoundError as error:
        if error.name not in modules:
            raise
        raise UserError(f"--{extra} needs {error.name}: pip install 'adaptively-sparse[{extra}]'") from None
