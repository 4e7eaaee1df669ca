"""α-entmax in transformers' models: against softmax, generation, training, saving, and what is refused."""

import pytest
import torch
import transformers
from transformers import DynamicCache

from user_dir.attention import Alpha, AlphaConfig
from user_dir.hugging_face import load_sparsified, sparsify

TINY = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
SEQ2SEQ = {
    **{name: TINY[name] for name in ("vocab_size", "pad_token_id", "bos_token_id", "eos_token_id")},
    **{"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "decoder_start_token_id": 2},
    **{"encoder_attention_heads": 4, "decoder_attention_heads": 4},
    **{"encoder_ffn_dim": 48, "decoder_ffn_dim": 48},
}
MODELS = {
    "BertForMaskedLM": TINY,
    "RobertaForMaskedLM": TINY,
    "DistilBertForMaskedLM": {
        "vocab_size": 50,
        "dim": 32,
        "hidden_dim": 48,
        "n_layers": 2,
        "n_heads": 4,
        "pad_token_id": 1,
    },
    "ModernBertForMaskedLM": {**TINY, "local_attention": 4, "cls_token_id": 0, "sep_token_id": 2},
    "GPT2LMHeadModel": {
        "vocab_size": 50,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "bos_token_id": 0,
        "eos_token_id": 2,
    },
    "DogeForCausalLM": {**TINY, "num_key_value_heads": 2},
    "LlamaForCausalLM": {**TINY, "num_key_value_heads": 2},
    "MistralForCausalLM": {**TINY, "num_key_value_heads": 2, "sliding_window": 3},
    "MarianMTModel": SEQ2SEQ,
    "BartForConditionalGeneration": SEQ2SEQ,
    "M2M100ForConditionalGeneration": SEQ2SEQ,
    "ViTForImageClassification": {
        **{k: v for k, v in TINY.items() if "token" not in k and k != "vocab_size"},
        "image_size": 8,
        "patch_size": 2,
    },
}
CAUSAL = [name for name in MODELS if name.endswith(("LMHeadModel", "CausalLM"))]


def build(name: str):
    torch.manual_seed(1)
    kind = getattr(transformers, name)
    config = kind.config_class(**MODELS[name])
    config._attn_implementation = "eager"
    return kind(config).eval()


def batch(name: str) -> dict:
    """Three sequences; but for images, with padding, which is on the left of a causal model."""
    generator = torch.Generator().manual_seed(2)
    if name.startswith("ViT"):
        return {"pixel_values": torch.randn(3, 3, 8, 8, generator=generator)}
    tokens = torch.randint(4, 50, (3, 7), generator=generator)
    mask = torch.ones_like(tokens)
    mask[0, :3] = mask[1, :1] = 0
    if name not in CAUSAL:
        mask = mask.flip(1)
    inputs = {"input_ids": tokens.where(mask.bool(), torch.tensor(1)), "attention_mask": mask}
    if name in ("MarianMTModel", "BartForConditionalGeneration", "M2M100ForConditionalGeneration"):
        inputs["decoder_input_ids"] = torch.randint(4, 50, (3, 6), generator=generator)
    return inputs


def logits_and_gradients(model, inputs):
    model.zero_grad()
    logits = model(**inputs).logits
    if "attention_mask" in inputs and logits.shape[:2] == inputs["attention_mask"].shape:
        logits = logits[inputs["attention_mask"].bool()]
    logits.log_softmax(-1)[..., 1].sum().backward()
    grads = {n: p.grad for n, p in model.named_parameters() if p.grad is not None and not n.endswith(".a")}
    return logits.detach(), grads


@pytest.mark.parametrize("name", MODELS)
def test_at_alpha_1_it_is_eager_softmax(name):
    model, inputs = build(name), batch(name)
    expected, gradients = logits_and_gradients(model, inputs)
    logits, grads = logits_and_gradients(sparsify(model, 1.0), inputs)
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
    assert grads.keys() == gradients.keys()
    largest = max(g.abs().max() for g in gradients.values())
    for key, gradient in gradients.items():
        torch.testing.assert_close(grads[key], gradient, rtol=1e-4, atol=1e-5 * largest.item())


@pytest.mark.parametrize("name", [*CAUSAL, "M2M100ForConditionalGeneration"])
def test_generation_with_a_cache_is_that_without(name):
    model, inputs = sparsify(build(name), 1.5), batch(name)
    inputs.pop("decoder_input_ids", None)
    options = {"max_new_tokens": 6, "do_sample": False, "num_beams": 2}
    cached, anew = (model.generate(**inputs, **options, use_cache=use) for use in (True, False))
    assert torch.equal(cached, anew)
    if name in CAUSAL and "Mistral" not in name:
        static = model.generate(**inputs, **options, cache_implementation="static")
        assert torch.equal(static, anew)


def test_a_text_that_is_read_in_parts():
    model, tokens = sparsify(build("LlamaForCausalLM"), 1.5), batch("LlamaForCausalLM")["input_ids"]
    whole, cache = model(tokens).logits, DynamicCache()
    halves = [model(part, past_key_values=cache).logits for part in tokens.split(4, 1)]
    torch.testing.assert_close(torch.cat(halves, 1), whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["BertForMaskedLM", "MistralForCausalLM"])
def test_attentions_have_exact_zeros_where_nothing_may_be_seen_and_elsewhere(name):
    model, inputs = sparsify(build(name), 2.0), batch(name)
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.weight.data *= 20
    for weights in model(**inputs, output_attentions=True).attentions:
        seen = weights[inputs["attention_mask"].bool()[:, None].expand(-1, 4, -1)]
        torch.testing.assert_close(seen.sum(-1), torch.ones(len(seen)))
        assert not weights[(1 - inputs["attention_mask"]).bool()[:, None, None].expand_as(weights)].any()
        assert (weights == 0).float().mean() > 0.5


def test_a_mask_of_ones_own_is_added():
    model, tokens = build("BertForMaskedLM"), batch("BertForMaskedLM")["input_ids"]
    bias = torch.randn(3, 1, 7, 7, generator=torch.Generator().manual_seed(3))
    bias[:, :, :, 2] = float("-inf")
    expected = model(tokens, attention_mask=bias).logits
    torch.testing.assert_close(
        sparsify(model, 1.0)(tokens, attention_mask=bias).logits, expected, rtol=1e-5, atol=1e-5
    )


def test_trained_saved_and_loaded(tmp_path):
    name, folder = "BertForMaskedLM", tmp_path / "saved"
    model, inputs = build(name), batch(name)
    layer = "bert.encoder.layer.1"
    sparsify(model, AlphaConfig(alpha_init=1.3), where=[layer])
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=0.01)
    for _ in range(50):
        optimizer.zero_grad()
        model(**inputs, labels=inputs["input_ids"]).loss.backward()
        optimizer.step()
    alphas = {key: module() for key, module in model.named_modules() if isinstance(module, Alpha)}
    moved = [key for key, alpha in alphas.items() if (alpha - 1.3).abs().min() > 0.001 and alpha.numel() == 4]
    assert moved == [f"{layer}.attention.self.alpha"]
    expected = model.eval()(**inputs).logits
    model.save_pretrained(folder)
    for kind in (transformers.AutoModelForMaskedLM, transformers.BertForMaskedLM):
        loaded = load_sparsified(kind, folder)
        assert type(loaded) is transformers.BertForMaskedLM
        assert torch.equal(loaded.eval()(**inputs).logits, expected)
    without = transformers.AutoModelForMaskedLM.from_pretrained(folder, attn_implementation="alpha_entmax")
    with pytest.raises(ValueError, match="load_sparsified"):
        without(**inputs)
    build(name).save_pretrained(tmp_path / "dense")
    with pytest.raises(ValueError, match="sparsify"):
        load_sparsified(transformers.AutoModelForMaskedLM, tmp_path / "dense")


def test_parameters_that_transformers_renames_are_loaded(tmp_path):
    torch.manual_seed(1)
    model = sparsify(transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**TINY)).eval(), 1.5)
    model.save_pretrained(tmp_path)
    loaded, tokens = load_sparsified(transformers.AutoModelForCausalLM, tmp_path), batch("LlamaForCausalLM")
    assert torch.equal(loaded.eval()(**tokens).logits, model(**tokens).logits)


def test_what_cannot_be_computed_is_refused_by_name():
    t5 = transformers.T5Config(vocab_size=50, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4)
    model = transformers.T5ForConditionalGeneration(t5)
    with pytest.raises(ValueError, match="position_bias"):
        sparsify(model, 1.5)(
            input_ids=torch.ones(1, 3, dtype=int), decoder_input_ids=torch.ones(1, 2, dtype=int)
        )
    gemma = transformers.Gemma2Config(**TINY, num_key_value_heads=2, head_dim=8)
    with pytest.raises(ValueError, match="softcap"):
        sparsify(transformers.Gemma2ForCausalLM(gemma), 1.5)(torch.ones(1, 3, dtype=int))
    pegasus = transformers.BigBirdPegasusConfig(**SEQ2SEQ, attention_type="original_full")
    with pytest.raises(ValueError, match="masks"):  # it would see the future
        sparsify(transformers.BigBirdPegasusForCausalLM(pegasus), 1.5)
    with pytest.raises(ValueError, match=r"bert\.nothing"):
        sparsify(build("BertForMaskedLM"), where=["bert.nothing"])
    with pytest.raises(ValueError, match="attention interface"):
        sparsify(transformers.BertForMaskedLM(transformers.BertConfig(**TINY)).cls)
