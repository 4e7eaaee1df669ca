"""CTranslate2, an inference engine in C++, with the parameters of our softmax model: a peer in translation.

CTranslate2 has no α-entmax, so there is no such export for users.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

COMPUTE_TYPES = {"cpu": ("float32", "int8"), "cuda": ("float16",)}
"""Of each type of device."""


class Peer:
    """Translates batches in fairseq's form with CTranslate2.

    Args:
        model: our model with softmax, or fairseq's ``transformer``; pre-norm or post-norm, with ReLU.
        task: its translation task.
        beam: beam size.
        compute_type: one of :data:`COMPUTE_TYPES` for the model's device, on which it translates.

    Raises:
        ImportError: ctranslate2 is not installed.
    """

    def __init__(self, model, task, beam: int, compute_type: str):
        import ctranslate2

        self._words, self._beam = task.target_dictionary, beam
        with tempfile.TemporaryDirectory() as folder:
            export(model, task, Path(folder))
            self._translator = ctranslate2.Translator(
                folder,
                device=next(model.parameters()).device.type,
                compute_type=compute_type,
                intra_threads=torch.get_num_threads(),
            )
        self._sources = task.source_dictionary

    def __call__(self, batch: dict, length: int) -> list[list[str]]:
        """Translations of exactly ``length`` pieces each, best hypotheses only."""
        padding = self._sources.pad()
        rows: Iterable[list[int]] = batch["net_input"]["src_tokens"].tolist()
        sources = [[self._sources[i] for i in row if i != padding][:-1] for row in rows]
        return self.translate(sources, length)

    def translate(self, sources: list[list[str]], length: int) -> list[list[str]]:
        """Translations of sentences in pieces, without ``</s>``, as :meth:`__call__`.

        Takes as many steps as fairseq's search, which scores the end of each translation as well.
        """
        results = self._translator.translate_batch(
            sources,
            beam_size=self._beam,
            min_decoding_length=length,
            max_decoding_length=length + 1,
            max_batch_size=0,
        )
        return [result.hypotheses[0][:length] for result in results]


def export(model, task, folder: Path) -> None:
    """Write a model for CTranslate2 into an existing folder."""
    from ctranslate2.converters.fairseq import set_transformer_decoder, set_transformer_encoder
    from ctranslate2.specs import TransformerSpec

    model = copy.deepcopy(model).requires_grad_(False).cpu().float()
    layers = len(model.encoder.layers), len(model.decoder.layers)
    layer: Any = model.decoder.layers[0]
    spec = TransformerSpec.from_config(layers, layer.self_attn.num_heads, pre_norm=layer.normalize_before)
    set_transformer_encoder(spec.encoder, model.encoder)
    set_transformer_decoder(spec.decoder, model.decoder)
    for register, words in (
        (spec.register_source_vocabulary, task.source_dictionary),
        (spec.register_target_vocabulary, task.target_dictionary),
    ):
        register(list(words.symbols))
    spec.config.decoder_start_token = spec.config.eos_token
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize()
    spec.save(str(folder))
