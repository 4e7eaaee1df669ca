"""The settings that name files, folders and modules, and what replaces those of a checkpoint.

fairseq opens whatever they name, whoever wrote the checkpoint. So :mod:`.hostile_checkpoints` replaces them
by what fairseq takes where nothing is given, and only the command line and the caller name files.
"""

from __future__ import annotations

from argparse import SUPPRESS, Namespace
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import get_args

from fairseq.dataclass.configs import FairseqConfig
from fairseq.registry import REGISTRIES
from omegaconf import OmegaConf

from ..sections import SECTIONS, section_dataclass, section_flags

# Settings that name a file, folder or module. Those of a checkpoint are ignored; the command line's are used.
FILES = {
    "user_dir",
    "encoder_embed_path",
    "decoder_embed_path",
    "embed_path",
    "alpha_log",
    "bert",
    "path",
    "lm_path",
    "w2v_path",
    "seq2seq_path",
    "quantization_config_path",
    "results_path",
    "restore_file",
    "finetune_from_model",
    "continue_once",
    "save_dir",
    "tensorboard_logdir",
    "log_file",
    "aim_repo",
    "plasma_path",
    "pretrained_checkpoint",
    "pretrained_xlm_checkpoint",
    "pretrained_mlm_checkpoint",
    "load_pretrained_encoder_from",
    "load_pretrained_decoder_from",
    "load_pretrained_aux_decoder_from",
    "save_predictions",
    "baseline_model",
    "bpe_codes",
    "bpe_merges",
    "bpe_vocab",
    "bpe_vocab_file",
    "sentencepiece_model",
    "sentencepiece_model_path",
    "gpt2_encoder_json",
    "gpt2_vocab_bpe",
    "config_yaml",
    "multitask_config_yaml",
    "extra_data",
    "fixed_dictionary",
    "source_dict",
    "target_dict",
    "lang_dict",
    "lang_to_offline_shard_ratio",
    "sampling_weights_from_file",
    "label_dir",
    "input",
    "destdir",
    "trainpref",
    "validpref",
    "testpref",
    "alignfile",
}
NO_DATA = "(no data folder was given)"  # replaces a checkpoint's data folder, which fairseq would open


def without_files(state: dict) -> dict:
    """Replace files, folders and modules in a checkpoint's settings by their defaults, in place."""
    _forget_files(state.get("cfg"), None)
    _forget_files(state.get("args"), None)
    return state


def _forget_files(settings, section: str | None) -> None:
    if isinstance(settings, (list, tuple)):
        for inner in settings:
            _forget_files(inner, section)
    elif isinstance(settings, (dict, Namespace)):
        values = vars(settings) if isinstance(settings, Namespace) else settings
        declared = None
        for name, value in list(values.items()):
            if isinstance(value, dict) or name not in FILES | {"data"} or value is None:
                _forget_files(value, name)
            elif name == "data":
                values[name] = NO_DATA
            else:
                # The key stays: what the command line gives replaces existing keys only.
                declared = declared or list(_declarations(section, values))
                values[name] = _default(name, declared)


def _default(name: str, declarations: list[tuple]):
    """What fairseq takes for a file that is not given: None if it may be None."""
    for declared, flags in declarations:
        for field in fields(declared) if is_dataclass(declared) else ():
            if field.name == name:
                return None if type(None) in get_args(field.type) else _value(field.default)
        if flags and name in flags:
            default = flags[name].default
            return None if default is SUPPRESS else default
    return None


def _declarations(section: str | None, settings: dict) -> Iterator[tuple]:
    """Dataclass and flags of the section; of all sections, where settings are not divided into sections."""
    chosen = {section: settings.get("_name")}
    if section not in SECTIONS or "arch" in settings:  # by fairseq-train, all flags are in every section
        chosen |= {"task": settings.get("task"), "model": settings.get("arch")}
        chosen |= {kind: settings.get(kind) for kind in REGISTRIES}
        chosen |= {kind: None for kind in SECTIONS if kind not in chosen}
    for kind, name in chosen.items():
        if kind in SECTIONS and (name is None or isinstance(name, str)):
            yield section_dataclass(kind, name), section_flags(kind, name)


def _value(default):
    """The default of a field that must be a string."""
    if default is MISSING or default == "???":
        return ""
    if isinstance(default, str) and default.startswith("${"):
        return OmegaConf.select(OmegaConf.structured(FairseqConfig()), default[2:-1]) or ""
    return default
