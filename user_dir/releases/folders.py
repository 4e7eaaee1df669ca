"""What all exports of a model have in common: a new folder, for programs that do not know this package."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from fairseq.tasks.translation import TranslationTask
from torch import Tensor, nn

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
    """A model to be exported ``to`` something; ``limit`` is the most pieces of a translation."""

    checkpoint: Path
    corpus: Corpus
    to: str
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
    return Exported(checkpoint, corpus, to, model, task, direction, limit)


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


@torch.no_grad()
def check_same(given: Exported, log_probs: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Raise UserError unless an export has the model's log-probabilities of random sentences.

    Args:
        given: the model, and what it was exported to.
        log_probs: those of the export (B, T, V), of sources (B, S) and what the decoder reads (B, T).
    """
    model, generator = given.model.eval(), torch.Generator().manual_seed(1)
    source, target = (
        torch.randint(4, side.embed_tokens.num_embeddings, (3, 9), generator=generator)
        for side in (model.encoder, model.decoder)
    )
    source[:, -1], target[:, 0] = 2, 2
    source[1, 5], source[1, 6:], source[2, :3] = 2, 1, 1
    expected = model.get_normalized_probs(model(source, source.ne(1).sum(1), target), True)
    # Near the threshold of a sparse output, rounding changes the logarithm of a small probability by much.
    least = -torch.inf if model.decoder.output_normalizer.is_softmax else -10.0
    error = (log_probs(source, target).clamp_min(least) - expected.clamp_min(least)).abs().max().item()
    if not error <= MAX_ERROR:
        raise UserError(
            f"{given.checkpoint} cannot be exported to {given.to}: log-probabilities differ by {error:.2g}, "
            "so the model has something that the export lacks"
        )


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
