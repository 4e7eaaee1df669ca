"""What our search does not know in a model is left to fairseq, whatever it is."""

import copy
import types

import pytest
import torch
from fairseq.modules import FairseqDropout
from helpers import build
from torch import nn

from user_dir.attention.normalizers import NORMALIZERS
from user_dir.attention.normalizers.alpha_entmax import Softmax
from user_dir.decoding.supported import unsupported_model
from user_dir.modules import AdaptivelySparseDecoderLayer, EntmaxMultiheadAttention
from user_dir.modules.linear import Linear


class OwnAttention(EntmaxMultiheadAttention):
    pass


class OwnLayer(AdaptivelySparseDecoderLayer):
    pass


class OwnSoftmax(Softmax):
    name = "own softmax"


def layer(model):
    return model.decoder.layers[1]


def attention(model):
    return layer(model).encoder_attn


def method(module):
    return types.MethodType(lambda self, *given, **named: type(self).forward(self, *given, **named), module)


CHANGES = {
    "subclass of a layer": lambda model: setattr(layer(model), "__class__", OwnLayer),
    "subclass of attention": lambda model: setattr(attention(model), "__class__", OwnAttention),
    "unknown part": lambda model: layer(model).add_module("adapter", nn.Linear(16, 16)),
    "unknown type in a known place": lambda model: setattr(
        layer(model), "fc1", nn.Sequential(layer(model).fc1)
    ),
    "unknown parameter": lambda model: layer(model).register_parameter("scale", nn.Parameter(torch.ones(16))),
    "unknown buffer": lambda model: attention(model).register_buffer("bias", torch.zeros(1)),
    "unknown attribute": lambda model: setattr(attention(model), "window", 3),
    "unknown attribute of a linear layer": lambda model: setattr(attention(model).q_proj, "scale", 2.0),
    "overridden forward": lambda model: setattr(attention(model), "forward", method(attention(model))),
    "overridden method": lambda model: setattr(layer(model), "residual_connection", lambda x, y: x + 2 * y),
    "overridden method of the decoder": lambda model: setattr(model.decoder, "output_layer", lambda x: x),
    "pre-hook": lambda model: attention(model).register_forward_pre_hook(lambda *_: None),
    "hook": lambda model: attention(model).out_proj.register_forward_hook(lambda *_: None),
    "parametrisation": lambda model: nn.utils.parametrizations.weight_norm(layer(model).fc1),
    "other order": lambda model: setattr(layer(model), "normalize_before", False),
    "additional keys": lambda model: setattr(layer(model).self_attn, "add_zero_attn", True),
    "training mode": lambda model: layer(model).dropout_module.train(),
    "kept dropout": lambda model: setattr(layer(model).dropout_module, "apply_during_inference", True),
    "scaled heads": lambda model: setattr(layer(model), "c_attn", nn.Parameter(torch.ones(2))),
    "noise": lambda model: setattr(model.decoder, "quant_noise", FairseqDropout(0.1)),
    "unregistered normalizer": lambda model: setattr(attention(model), "normalizer", OwnSoftmax()),
    "normalizer of another attention type": lambda model: setattr(
        attention(model), "normalizer", NORMALIZERS["fixed"].build("encoder_self", 4, 16)
    ),
    "changed normalizer": lambda model: setattr(attention(model).normalizer, "weights", torch.relu),
    "LayerNorm without a bias": lambda model: setattr(layer(model).final_layer_norm, "bias", None),
    "output norm": lambda model: setattr(attention(model), "gated_norm", nn.RMSNorm(16)),
    "other types": lambda model: (
        setattr(attention(model), "alpha", attention(model).alpha.double())
        or setattr(layer(model), "fc2", layer(model).fc2.float())
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_not_passed_over(change):
    model = build("--length-scaling").eval()
    assert unsupported_model(model) is None
    CHANGES[change](model)
    assert unsupported_model(model) is not None


@pytest.mark.parametrize("kind", (EntmaxMultiheadAttention, AdaptivelySparseDecoderLayer, Linear, Softmax))
def test_a_method_replaced_in_a_class_is_not_passed_over(kind, monkeypatch):
    model = build("--attention-normalizer softmax").eval()
    assert unsupported_model(model) is None
    theirs = kind.forward
    monkeypatch.setattr(kind, "forward", lambda self, *given, **named: theirs(self, *given, **named))
    assert "forward" in vars(kind) and unsupported_model(model) is not None


def test_a_hook_of_all_modules_is_not_passed_over():
    model = build().eval()
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert unsupported_model(model) is not None
    finally:
        handle.remove()
    assert unsupported_model(model) is None


@pytest.mark.parametrize(
    "flags",
    (
        "--checkpoint-activations",
        "--encoder-layerdrop 0.3 --decoder-layerdrop 0.3",
        "--output-alpha 1.5 --alpha-schedule linear --alpha-schedule-updates 9",
        "--encoder-learned-pos --decoder-learned-pos --layernorm-embedding --share-all-embeddings",
        "--encoder-self-attention-normalizer fixed --length-scaling",
        "--latent-alignment --attention-normalizer rela --latent-alignment-alpha 2",
        "--dropout 0.1 --attention-dropout 0.1 --activation-dropout 0.1",
    ),
)
def test_a_model_in_use_is_known(flags):
    """After what fairseq does to a model for training and for translation, and as a copy."""
    model = build(flags)
    model.train()
    model.set_num_updates(3)
    model.decoder.set_beam_size(4)
    model.make_generation_fast_()
    model.eval()
    assert unsupported_model(model) is None
    assert unsupported_model(copy.deepcopy(model)) is None
