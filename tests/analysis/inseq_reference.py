"""Write inseq_reference.json: the attributions that inseq computes for a Marian model of known weights.

    pip install inseq==0.7.1 transformers==4.53.3 && python tests/analysis/inseq_reference.py

in an environment of its own. The tests compare ours with the file, so inseq is not a requirement. Embeddings
are scaled in the weights (``scale_embedding=False``), because inseq scales those of Marian's decoder twice.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import torch

FILE = Path(__file__).with_suffix(".json")
WORDS = ["<s>", "<pad>", "</s>", "<unk>", *(f"word{i}" for i in range(20))]
SOURCE, TARGET = [4, 9, 13, 7, 9, 20, 2], [6, 11, 5, 18, 8, 2]
CHANNELS = 16


def weight(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """A parameter by its name in fairseq's model; the embeddings are those before scaling."""
    values = np.random.default_rng(zlib.crc32(name.encode())).normal(size=shape) * 0.3
    return torch.from_numpy(values + (1 if name.endswith("layer_norm.weight") else 0))


def positions(count: int) -> torch.Tensor:
    """fairseq's sinusoidal positions (count, C) of a sentence without padding; its first position is 2."""
    half = CHANNELS // 2
    angles = np.arange(2, count + 2)[:, None] * 10_000 ** (-np.arange(half) / (half - 1))
    return torch.from_numpy(np.concatenate([np.sin(angles), np.cos(angles)], axis=1))


def marian():
    """Hugging Face's model with these weights, and a tokenizer of words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import MarianConfig, MarianMTModel, PreTrainedTokenizerFast

    sizes = {}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 2, f"{side}_attention_heads": 4, f"{side}_ffn_dim": 24}
    model = MarianMTModel(
        MarianConfig(
            vocab_size=len(WORDS),
            decoder_vocab_size=len(WORDS),
            d_model=CHANNELS,
            **sizes,
            activation_function="relu",
            max_position_embeddings=60,
            **{"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2},
            tie_word_embeddings=False,
            attn_implementation="eager",
        )
    ).eval()
    state = model.state_dict()
    embedding = weight("encoder.embed_tokens.weight", (len(WORDS), CHANNELS))
    for name, value in state.items():
        if name.endswith(("shared.weight", "embed_tokens.weight")):
            state[name] = embedding * CHANNELS**0.5
        elif name == "lm_head.weight":
            state[name] = embedding
        elif "embed_positions" in name:
            state[name] = positions(60)
        elif name != "final_logits_bias":
            state[name] = weight(name.removeprefix("model."), tuple(value.shape))
    model.load_state_dict(state)
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    return model, PreTrainedTokenizerFast(tokenizer_object=words, **special)


def main() -> None:
    """Write the file."""
    import inseq

    model, tokenizer = marian()
    texts = [" ".join(WORDS[i] for i in tokens[:-1]) for tokens in (SOURCE, TARGET)]
    found = {}
    for method in ("input_x_gradient", "value_zeroing"):
        attributed = inseq.load_model(model, method, tokenizer=tokenizer)
        out = attributed.attribute(*texts, attribute_target=True, show_progress=False).sequence_attributions[
            0
        ]
        parts = {"decoder_context": out.source_attributions, "decoder_self": out.target_attributions[:-1]}
        if method == "value_zeroing":
            parts["encoder_self"] = out.sequence_scores["encoder_self_scores"]
        for kind, scores in parts.items():  # (keys, queries, C or L)
            scores = scores.nan_to_num(0).double().permute(2, 1, 0)
            scores = scores.sum(0) if method == "input_x_gradient" else scores
            found[f"{method}/{kind}"] = [
                [float(f"{x:.7g}") for x in row] for row in scores.flatten(0, -2).tolist()
            ]
    FILE.write_text(json.dumps(found, indent=0).replace(",\n", ", ").replace("\n", ""), encoding="utf-8")


if __name__ == "__main__":
    main()
