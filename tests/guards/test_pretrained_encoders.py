"""fairseq's roberta_enc_dec with an encoder that fairseq-hydra-train pretrained."""

import torch
from fairseq import checkpoint_utils
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import OmegaConf
from post_editing import dictionary

SIZES = {
    "encoder_layers": 2,
    "encoder_embed_dim": 16,
    "encoder_ffn_embed_dim": 24,
    "encoder_attention_heads": 4,
}


def build(task, **settings):
    """As fairseq-hydra-train builds a model: from a DictConfig whose architecture fills in the rest."""
    args = OmegaConf.create(settings)
    ARCH_CONFIG_REGISTRY[settings["_name"]](args)
    return ARCH_MODEL_REGISTRY[settings["_name"]].build_model(args, task), args


def test_the_decoder_starts_from_the_encoder_and_its_settings_are_whole(tmp_path):
    words = dictionary()
    words.save(str(tmp_path / "dict.txt"))
    task = TranslationTask(TranslationConfig(data=str(tmp_path)), words, words)
    roberta, args = build(task, _name="roberta", max_positions=30, **SIZES)
    state = {
        "cfg": {"model": OmegaConf.to_container(args), "task": {"_name": "masked_lm", "data": str(tmp_path)}},
        "model": roberta.state_dict(),
        "optimizer_history": [{"num_updates": 1, "optimizer_name": "x", "lr_scheduler_state": {}}],
        "extra_state": {"epoch": 1, "train_iterator": {"epoch": 1}},
    }
    checkpoint_utils.torch_persistent_save(state, str(tmp_path / "encoder.pt"))
    flags = {"_name": "roberta_enc_dec", "pretrained_decoder": True, "share_all_embeddings": True}
    model, args = build(task, pretrained_mlm_checkpoint=str(tmp_path / "encoder.pt"), **flags)
    for name, value in roberta.encoder.sentence_encoder.layers[1].named_parameters():
        assert torch.equal(model.encoder.layers[1].get_parameter(name), value)
        assert torch.equal(model.decoder.layers[1].get_parameter(name), value)

    # What its checkpoint says is enough to build it again.
    args.pretrained_mlm_checkpoint = None
    again, _ = build(task, **OmegaConf.to_container(args))
    again.load_state_dict(model.state_dict())
