"""A trained model as a folder that Hugging Face's transformers loads, without this package and fairseq."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from ..attention.normalizers.alpha_entmax import AlphaEntmax
from ..checkpoints import load_checkpoint
from ..corpora import Corpus
from ..corpora.cleaning import steps_of_new_text
from ..errors import UserError
from ..files import write_json
from ..models import AdaptivelySparseTransformerModel
from ..models.settings import exact_type
from ..translation.loading import load_model, translation_direction, translation_limit
from .model_folder import new_folder

MAX_ALPHA = 2.0  # of the entmax in the folder
TOKENS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
MAX_ERROR = 1e-3  # of log-probabilities, with float32's rounding in all layers


def write_folder(checkpoint: Path, corpus: Corpus, output: Path) -> str:
    """Write a folder for ``AutoModelForSeq2SeqLM`` and ``AutoTokenizer``; returns its architecture.

    A model with softmax in every head becomes an M2M100; others bring their code. Log-probabilities
    are compared with those of the model before anything is written.

    Raises:
        UserError: the model or its corpus has something that cannot be expressed; the message names it.
    """
    state = load_checkpoint(checkpoint)
    direction = translation_direction(state, checkpoint, corpus)
    model, task = load_model(checkpoint, corpus, direction, cpu=True)
    if reason := unsupported_corpus(corpus):
        raise UserError(f"{checkpoint} cannot be exported to transformers: {reason}")
    with new_folder(output) as folder:
        from transformers import GenerationConfig

        exported = converted(model)
        limit = translation_limit(state, corpus).within(model.max_positions()[1])
        # as translate.py; </s> is not counted in the limit
        search = {"num_beams": 5, "early_stopping": True, "min_new_tokens": 1, "max_new_tokens": limit.b + 1}
        search |= {"forced_eos_token_id": 2, "bad_words_ids": [[1]]}
        exported.generation_config = GenerationConfig(**search, **TOKENS)
        exported.save_pretrained(folder)
        tokenizer_of(corpus, task, direction, model.max_positions()[0]).save_pretrained(folder)
    return type(exported).__name__


def unsupported_corpus(corpus: Corpus) -> str | None:
    """Why text of a corpus needs more than sentencepiece; None if it does not."""
    description = corpus.description
    if corpus.pieces.suffix != ".model":
        return "its pieces are not of sentencepiece"
    if description.normalization == "identity":
        return f"{corpus.name} has normalization: identity, and its tokenizer would not see all white space"
    if description.tokenised:
        return f"{corpus.name} is released as tokens"
    steps = steps_of_new_text(description)
    return f"{corpus.name} normalises text ({', '.join(steps)})" if steps else None


def converted(model):
    """The model in transformers.

    Raises:
        UserError: transformers has no architecture with the model's parameters and log-probabilities.
    """
    if exact_type(model) is not AdaptivelySparseTransformerModel:
        raise UserError(f"a {type(model).__name__} cannot be exported to transformers")
    attentions = [attention for layers in model.attentions().values() for attention in layers]
    if not all(isinstance(attention.normalizer, AlphaEntmax) for attention in attentions):
        raise UserError("attention that is not α-entmax cannot be exported to transformers")
    if max(attention.alpha().max() for attention in attentions) > MAX_ALPHA:
        raise UserError(f"an α above {MAX_ALPHA:g} cannot be exported to transformers")
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    settings = _settings(model)
    if all((attention.alpha() == 1).all() for attention in attentions):
        exported = M2M100ForConditionalGeneration(M2M100Config(**settings))
    else:
        from . import modeling_adaptively_sparse as ours

        ours.AdaptivelySparseConfig.register_for_auto_class()
        ours.AdaptivelySparseForConditionalGeneration.register_for_auto_class("AutoModelForSeq2SeqLM")
        exported = ours.AdaptivelySparseForConditionalGeneration(ours.AdaptivelySparseConfig(**settings))
    _fill(exported.eval(), model)
    difference = largest_difference(model, exported)
    if not difference <= MAX_ERROR:
        raise UserError(f"{type(exported).__name__} computes other log-probabilities, by {difference:.2g}")
    return exported


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
        **TOKENS,
        "forced_eos_token_id": None,
        "tie_word_embeddings": True,
    }
    for name, side in (("encoder", model.encoder), ("decoder", model.decoder)):
        settings[f"{name}_layers"] = len(side.layers)
        settings[f"{name}_attention_heads"] = side.layers[0].self_attn.num_heads
        settings[f"{name}_ffn_dim"] = side.layers[0].fc1.out_features
    return settings


def _fill(exported, model) -> None:
    """Copy α and the parameters, whose names in both models are the same except for a prefix."""
    state = {
        f"model.{name}": parameter
        for name, parameter in model.named_parameters()
        if not name.endswith(".alpha.a") and "embed_tokens" not in name and "output_projection" not in name
    }
    own = exported.state_dict()
    for name in ("lm_head", "model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens"):
        state[f"{name}.weight"] = model.encoder.embed_tokens.weight
    for name, attention in model.named_modules():
        key = f"model.{name}.alpha"
        if key in own:
            state[key] = attention.alpha().detach().expand(attention.num_heads, 1, 1).contiguous()
    missing, unexpected = exported.load_state_dict(state, strict=False)
    missing = [name for name in missing if "embed_positions" not in name]
    if missing or unexpected:
        raise UserError(f"{type(exported).__name__} has other parameters: {[*missing, *unexpected][:3]}")


@torch.no_grad()
def largest_difference(model, exported) -> float:
    """The largest difference of log-probabilities of random sentences between a model and its export."""
    generator, symbols = torch.Generator().manual_seed(1), model.encoder.embed_tokens.num_embeddings
    source, target = torch.randint(4, symbols, (2, 3, 9), generator=generator)
    source[:, -1], target[:, 0] = 2, 2
    source[1, 5], source[1, 6:], source[2, :3] = 2, 1, 1
    expected = model.eval().get_normalized_probs(model(source, source.ne(1).sum(1), target), True)
    logits = exported(input_ids=source, attention_mask=source != 1, decoder_input_ids=target).logits
    return (logits.log_softmax(-1) - expected).abs().max().item()


def tokenizer_of(corpus: Corpus, task, direction: tuple[str, str], max_length: int):
    """Marian's tokenizer: sentencepiece's own code, and the numbers of fairseq's dictionary."""
    from transformers import MarianTokenizer

    pieces = str(corpus.pieces)
    with tempfile.TemporaryDirectory() as temporary:
        vocabulary = Path(temporary) / "vocab.json"
        write_json(vocabulary, {symbol: i for i, symbol in enumerate(task.source_dictionary.symbols)})
        languages = dict(zip(("source_lang", "target_lang"), direction))
        return MarianTokenizer(pieces, pieces, str(vocabulary), model_max_length=max_length, **languages)
