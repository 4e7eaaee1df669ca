"""Settings that only our models know reach their decoder from a config of hydra, too."""

from argparse import Namespace

import pytest
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.models.transformer import TransformerConfig
from helpers import SMALL, parse, translation_task
from omegaconf import MISSING, OmegaConf

from user_dir.models.latent_alignment import LatentAlignmentDecoder


def as_config(**settings):
    return OmegaConf.create(settings, flags={"allow_objects": True})


@pytest.mark.parametrize("made", (Namespace, as_config))
def test_what_fairseq_does_not_know_is_kept(made):
    cfg = TransformerConfig.from_namespace(made(encoder_embed_dim=24, ours="kept", dropout=0.3))
    assert (cfg.ours, cfg.encoder.embed_dim, cfg.dropout) == ("kept", 24, 0.3)


def test_missing_settings_keep_their_default():
    cfg = TransformerConfig.from_namespace(as_config(dropout=MISSING, ours=MISSING))
    assert cfg.dropout == TransformerConfig().dropout and not hasattr(cfg, "ours")


def test_a_latent_alignment_is_built_from_a_config():
    arch = "adaptively_sparse_transformer"
    args = parse(f"{SMALL} --latent-alignment", arch)
    model = ARCH_MODEL_REGISTRY[arch].build_model(as_config(**vars(args)), translation_task())
    assert isinstance(model.decoder, LatentAlignmentDecoder)
