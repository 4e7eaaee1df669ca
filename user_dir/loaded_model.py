"""A trained model in one object: its translations, and the attention of its heads on them."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, overload

from .errors import UserError
from .io import file_version
from .releases.named import named_model
from .releases.opened import opened
from .translation.translator import Translator, open_translator

if TYPE_CHECKING:
    from .analysis.maps import SentenceMaps


class LoadedModel:
    """A model that translates and shows what its heads attend to; from :func:`open_model`.

    Args:
        translator: see below.
        by_fairseq: gives one of the same model that has a model of fairseq.

    Attributes:
        translator: for n-best lists, scores and tokens.
    """

    def __init__(self, translator: Translator, by_fairseq: Callable[[], Translator]):
        self.translator = translator
        self._by_fairseq = functools.cache(by_fairseq)

    @overload
    def translate(self, sentences: str) -> str: ...

    @overload
    def translate(self, sentences: list[str]) -> list[str]: ...

    def translate(self, sentences):
        """The best translation of a sentence, or of each in a list; empty for an empty sentence.

        Raises UserError if a sentence has more tokens than the model allows.
        """
        if isinstance(sentences, str):
            return self.translate([sentences])[0]
        return [found[0].text if found else "" for found in self.translator(sentences)]

    def attention(self, sentence: str, translation: str | None = None) -> SentenceMaps:
        """What every head attends to on a sentence, while the decoder reads a translation of it.

        The first call reads the model again, with fairseq.

        Args:
            sentence: natural text, as for :meth:`translate`.
            translation: what the decoder reads; None for the model's own translation.

        Returns:
            ``weights`` by attention type, such as ``decoder_context``: (L, H, T, S) float32. ``source`` and
            ``target_input`` are the tokens of columns and rows, ``target`` those that the rows predict.

        Raises:
            UserError: one of the two is empty, or has more tokens than the model allows; or the model's file
                has changed.
        """
        import torch

        from .analysis.capture import captured_attention, on_device, run
        from .analysis.maps_writer import sentence_maps
        from .analysis.translated import dataset_of

        translator = self._by_fairseq()
        (model,), task = translator.search.models, translator.search.task
        (source,) = translator.encode([sentence])
        if translation is not None:
            target = translator.encode_target(translation)
        elif found := self.translator([sentence])[0]:
            target = found[0].tokens
        else:
            raise ValueError(f"there is nothing to attend to in {sentence!r}")
        dataset = dataset_of(task, [source], [target])
        sample = on_device(dataset.collater([dataset[0]]), model)
        with torch.no_grad(), captured_attention(model) as captured:
            run(model, sample)
        return sentence_maps(task, sample, 0, captured, sentence)


def open_model(model: str | Path, *, cpu: bool = False, **options) -> LoadedModel:
    """Load a model with all that translating needs; ``adaptively_sparse.load_model`` is this function.

    Args:
        model: the name of a model that comes with the project, such as ``"de-en"``; or the path of a release
            archive (``.tar``) or of a checkpoint (``.pt``) whose corpus is prepared.
        cpu: use the CPU even if there is a GPU.
        options: those of :func:`~user_dir.translation.translator.open_translator`, such as ``beam``.

    Raises:
        UserError: there is no such model, or it is damaged.

    Example::

        model = load_model("de-en")
        print(model.translate("Der Hund schläft."))
        print(model.attention("Der Hund schläft.").weights["decoder_context"].shape)
    """
    logging.getLogger("fairseq").setLevel(logging.WARNING)
    named = isinstance(model, str) and not Path(model).suffix and "/" not in model
    path = named_model(model) if named else Path(model)
    version = file_version(path)

    def translator(**how) -> Translator:
        with opened([path]) as (checkpoints, corpus):
            given = {"corpus": corpus, **options} if corpus is not None else options
            return open_translator(checkpoints, cpu=cpu, load=_load_model, **{**given, **how})

    def by_fairseq() -> Translator:
        if file_version(path) != version:
            raise UserError(f"{path} was changed or removed since the model was loaded; load it again")
        return translator(by_fairseq=True, int8=False)

    return LoadedModel(translator(), by_fairseq)


def _load_model(*args, **kwargs):
    """See :func:`.analysis.capture.load_model`, which imports fairseq."""
    from .analysis.capture import load_model

    return load_model(*args, **kwargs)
