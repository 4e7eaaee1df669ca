"""fairseq's ``roberta_enc_dec`` hardly reads an encoder that was pretrained with ``fairseq-hydra-train``.

It takes the decoder's settings from those of the encoder, but only if they are a Namespace, and its own
checkpoints do not tell the sizes, so that they need the encoder's checkpoint for ever (0.12.2 and later). It
also opens the data folder that this checkpoint names, for the dictionary; :mod:`.hostile_checkpoints` removes
such names, but here the user has named the checkpoint in a flag. Unnecessary once fairseq reads both kinds of
settings, saves them, and uses the dictionary of the task.
"""

from argparse import Namespace
from contextlib import nullcontext
from unittest import mock

from fairseq import checkpoint_utils
from fairseq.models.roberta.enc_dec import RobertaEncDecModel
from omegaconf import OmegaConf, open_dict

from .checkpoint_files import read_checkpoint
from .installing import around

OWN = {  # settings of the encoder-decoder that are not those of the encoder
    *("_name", "arch", "data", "pretrained_mlm_checkpoint", "pretrained_decoder", "share_all_embeddings"),
    *("share_decoder_input_output_embed", "hack_layernorm_embedding"),
}


@around(RobertaEncDecModel, "build_model")
def build_model(build, cls, args, task):
    """Let the encoder be read with its data folder, and take over its settings."""
    path = getattr(args, "pretrained_mlm_checkpoint", None)
    if not path:
        return build(cls, args, task)
    settings = (read_checkpoint(path).get("cfg") or {}).get("task")
    data = settings.get("data") if hasattr(settings, "get") else getattr(settings, "data", None)
    load = checkpoint_utils.load_model_ensemble_and_task

    def load_with_data(filenames, arg_overrides=None, **others):
        models, *rest = load(filenames, arg_overrides={**(arg_overrides or {}), "data": data}, **others)
        for model in models:
            with open_dict(args) if OmegaConf.is_config(args) else nullcontext():
                for name, value in vars(_namespace(model.args)).items():
                    if name not in OWN:
                        setattr(args, name, value)
        return models, *rest

    with mock.patch.object(checkpoint_utils, "load_model_ensemble_and_task", load_with_data):
        return build(cls, args, task)


@around(RobertaEncDecModel, "read_args_from_roberta")
def read_args_from_roberta(read, args):
    """Take settings of both kinds."""
    return read(_namespace(args))


def _namespace(settings) -> Namespace:
    return Namespace(**OmegaConf.to_container(settings)) if OmegaConf.is_config(settings) else settings
