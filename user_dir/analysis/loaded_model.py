"""A trained model in one object: its translations, and the attention of its heads on them."""

from __future__ import annotations

import functools
import logging
import threading
from pathlib import Path

import torch

from ..translation.loading import find_model
from ..translation.translator import Translator
from .capture import captured_attention, dataset_of, load_model, on_device, run
from .maps import SentenceMaps, sentence_maps


class LoadedModel:
    """A model that translates and shows what its heads attend to; from ``adaptively_sparse.load_model``.

    Unpickling loads it again from its files. Calls from several threads take turns.

    Args:
        model: as for :func:`~..translation.loading.find_model`; the corpus of a checkpoint must be prepared.
        options: those of :class:`~..translation.translator.Translator`, such as ``beam``.

    Attributes:
        translator: for n-best lists, scores and tokens.

    Example::

        model = load_model("de-en")
        print(model.translate("Der Hund schläft."))
        print(model.attention("Der Hund schläft.").weights["decoder_context"].shape)
    """

    def __init__(self, model: str | Path, **options):
        logging.getLogger("fairseq").setLevel(logging.WARNING)
        self._model, self._options, self._turn = model, options, threading.Lock()
        checkpoint, corpus = find_model(model)
        load = None if options.get("int8") else load_model
        self.translator = Translator([checkpoint], **{"corpus": corpus, "load": load, **options})

    def __reduce__(self):
        return functools.partial(LoadedModel, self._model, **self._options), ()

    def translate(self, sentences: str | list[str]) -> str | list[str]:
        """The best translation of a sentence, or of each in a list; empty for an empty sentence."""
        if isinstance(sentences, str):
            return self.translate([sentences])[0]
        with self._turn:
            return [hypotheses[0].text if hypotheses else "" for hypotheses in self.translator(sentences)]

    def attention(self, sentence: str, translation: str | None = None) -> SentenceMaps:
        """What every head attends to on a sentence, while the decoder reads a translation of it.

        ``translation`` is by default the model's own.

        Returns:
            ``weights`` by attention type, such as ``decoder_context``: (L, H, T, S) float32. ``source`` and
            ``target_input`` are the tokens of columns and rows, ``target`` those that the rows predict.

        Raises:
            ValueError: the sentence is empty, or one of the two has more tokens than the model allows.
        """
        (model,), task = self.translator.models, self.translator.task
        source = self.translator.encode(sentence)
        with self._turn:
            hypotheses = self.translator([sentence])[0] if translation is None else []
        if translation is not None:
            target = self.translator.encode_target(translation)
        elif hypotheses:
            target = hypotheses[0].tokens
        else:
            raise ValueError(f"there is nothing to attend to in {sentence!r}")
        dataset = dataset_of(task, [source], [target])
        sample = on_device(dataset.collater([dataset[0]]), model)
        with self._turn, torch.no_grad(), captured_attention(model) as captured:
            run(model, sample)
        return sentence_maps(task, sample, 0, captured, model.alpha_values(), text=sentence)
