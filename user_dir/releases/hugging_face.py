"""A trained model as a folder that Hugging Face's transformers loads, without this package and fairseq."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from fairseq.modules import SinusoidalPositionalEmbedding
from torch import Tensor

from ..attention.normalizers.alpha_entmax import AlphaEntmax
from ..corpora import Corpus
from ..errors import UserError
from ..io import write_json
from ..models import AdaptivelySparseTransformerModel
from .folders import Exported, check_same, model_to_export, new_folder

MAX_ALPHA = 2.0  # of the entmax in the folder


def write_folder(checkpoint: Path, corpus: Corpus, output: Path) -> str:
    """Write a folder for ``AutoModelForSeq2SeqLM`` and ``AutoTokenizer``; returns its architecture.

    A pre-norm model with softmax in every head becomes an M2M100; others bring their code. Log-probabilities
    are compared with those of the model before anything is written.

    Raises:
        UserError: the model or its corpus has something that cannot be expressed; the message names it.
    """
    given = model_to_export(checkpoint, corpus, "transformers", unsupported_model)
    with new_folder(output, "transformers", ("transformers",)) as folder, _loadable_transformers():
        found = converted(given.model)
        check_same(given, partial(forced, found))
        found.generation_config = _generation(given.limit)
        found.save_pretrained(folder)
        tokenizer_of(given).save_pretrained(folder)
    return type(found).__name__


@contextmanager
def _loadable_transformers() -> Iterator[None]:
    """With an empty torchaudio where it does not load, as beside torch's builds for CPUs.

    fairseq brings it, and transformers imports it if it is there.
    """
    try:
        import torchaudio  # noqa: F401
    except (ImportError, OSError):
        sys.modules["torchaudio"] = ModuleType("torchaudio")
        sys.modules["torchaudio"].__spec__ = ModuleSpec("torchaudio", None)
        try:
            yield
        finally:
            del sys.modules["torchaudio"]
    else:
        yield


def unsupported_model(model) -> str | None:
    """What the architectures of transformers do not have; None if they have all."""
    if type(model) is not AdaptivelySparseTransformerModel:
        return f"it is a {type(model).__name__}; of a stock model, export what convert_checkpoint.py writes"
    encoder, decoder = model.encoder, model.decoder
    attentions = [attention for layers in model.attentions().values() for attention in layers]
    tied = encoder.embed_tokens.weight is decoder.embed_tokens.weight is decoder.output_projection.weight
    before = {layer.normalize_before for side in (encoder, decoder) for layer in side.layers}
    norms = {side.layer_norm is not None for side in (encoder, decoder)}
    functions = {layer.activation_fn for side in (encoder, decoder) for layer in side.layers}
    found = {
        "its embeddings are not all shared": tied,
        "it has learned positions": all(
            type(side.embed_positions) is SinusoidalPositionalEmbedding for side in (encoder, decoder)
        ),
        "some layers are pre-norm and others post-norm": len(before) == 1,
        "its last layer norm is missing or superfluous": norms == before,
        "its embeddings are normalised": encoder.layernorm_embedding is decoder.layernorm_embedding is None,
        "its activation function is not relu": functions == {torch.nn.functional.relu},
        "its output is not softmax": decoder.output_normalizer.is_softmax,
        "it has a latent alignment": model.alignment is None,
        "its normalizer is not α-entmax": all(isinstance(x.normalizer, AlphaEntmax) for x in attentions),
        "it scales by length": all(x.length_scaling is None for x in attentions),
        f"it has an α above {MAX_ALPHA:g}": max(x.alpha().max() for x in attentions) <= MAX_ALPHA,
    }
    return next((reason for reason, fits in found.items() if not fits), None)


def converted(model):
    """The model in transformers."""
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    before = model.encoder.layers[0].normalize_before
    alphas = [attention.alpha() for layers in model.attentions().values() for attention in layers]
    settings = _settings(model)
    if before and all((alpha == 1).all() for alpha in alphas):
        found = M2M100ForConditionalGeneration(M2M100Config(**settings))
    else:
        from . import modeling_adaptively_sparse as ours

        ours.AdaptivelySparseConfig.register_for_auto_class()
        ours.AdaptivelySparseForConditionalGeneration.register_for_auto_class("AutoModelForSeq2SeqLM")
        config = ours.AdaptivelySparseConfig(**settings, normalize_before=before)
        found = ours.AdaptivelySparseForConditionalGeneration(config)
    return _filled(found.eval(), model)


def _settings(model) -> dict[str, Any]:
    """What the configs of all architectures have."""
    settings: dict[str, Any] = {
        "vocab_size": model.decoder.embed_tokens.num_embeddings,
        "d_model": model.encoder.embed_tokens.embedding_dim,
        "max_position_embeddings": max(model.max_positions()),
        "scale_embedding": model.encoder.embed_scale != 1.0,
        "activation_function": "relu",
        "dropout": model.encoder.dropout_module.p,
        "attention_dropout": model.encoder.layers[0].self_attn.dropout_module.p,
        "activation_dropout": model.encoder.layers[0].activation_dropout_module.p,
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": None,
        "tie_word_embeddings": True,
    }
    for name, side in (("encoder", model.encoder), ("decoder", model.decoder)):
        settings[f"{name}_layers"] = len(side.layers)
        settings[f"{name}_attention_heads"] = side.layers[0].self_attn.num_heads
        settings[f"{name}_ffn_dim"] = side.layers[0].fc1.out_features
    return settings


def _filled(found, model):
    """Copy the parameters, whose names are the same in both but for a prefix; and α."""
    state = {
        f"model.{name}": parameter
        for name, parameter in model.named_parameters()
        if not name.endswith(".alpha.a") and "embed_tokens" not in name and "output_projection" not in name
    }
    embeddings = model.encoder.embed_tokens.weight
    for side in ("encoder", "decoder"):
        state[f"model.{side}.embed_tokens.weight"] = embeddings
    own = found.state_dict()
    for name in ("lm_head.weight", "model.shared.weight"):
        state[name] = embeddings
    for side, layer, name in _attentions(model):
        attention = getattr(getattr(model, side).layers[layer], name)
        key = f"model.{side}.layers.{layer}.{name}.alpha"
        if key in own:
            state[key] = attention.alpha().detach().expand(attention.num_heads, 1, 1).contiguous()
    missing, unexpected = found.load_state_dict(state, strict=False)
    missing = [name for name in missing if "embed_positions" not in name]
    if missing or unexpected:
        raise UserError(f"{type(found).__name__} has other parameters: {[*missing, *unexpected][:3]}")
    return found


def _attentions(model):
    """Side, layer and name of each attention."""
    for side, names in (("encoder", ("self_attn",)), ("decoder", ("self_attn", "encoder_attn"))):
        for layer in range(len(getattr(model, side).layers)):
            for name in names:
                yield side, layer, name


def _generation(limit: int):
    """Beam search as translate.py's, with its defaults."""
    from transformers import GenerationConfig

    return GenerationConfig(
        num_beams=5,
        length_penalty=1.0,
        early_stopping=True,
        min_new_tokens=1,
        max_new_tokens=limit + 1,  # and </s>
        forced_eos_token_id=2,
        bad_words_ids=[[1]],
        bos_token_id=0,
        pad_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=2,
    )


def forced(found, source: Tensor, target: Tensor) -> Tensor:
    """Log-probabilities (B, T, V) by a model in transformers, while the decoder reads the target (B, T)."""
    logits = found(input_ids=source, attention_mask=source != 1, decoder_input_ids=target).logits
    return logits.log_softmax(-1)


def tokenizer_of(given: Exported):
    """Marian's tokenizer: sentencepiece's own code, and the numbers of fairseq's dictionary."""
    from transformers import MarianTokenizer

    pieces = str(given.corpus.pieces)
    with tempfile.TemporaryDirectory() as temporary:
        vocabulary = Path(temporary) / "vocab.json"
        symbols = given.task.source_dictionary.symbols
        write_json(vocabulary, {symbol: i for i, symbol in enumerate(symbols)})
        return MarianTokenizer(
            pieces,
            pieces,
            str(vocabulary),
            source_lang=given.direction[0],
            target_lang=given.direction[1],
            model_max_length=given.model.max_positions()[0],
        )
