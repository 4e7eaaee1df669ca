"""Settings of a checkpoint that would run code or open files, whoever wrote the checkpoint.

fairseq evaluates some as Python; here these must be literals. It opens the files, folders and modules that
others name; here these are replaced by what fairseq takes where nothing is given, so that only the command
line and the caller name files.
"""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from ..errors import UserError
from ..io import shown
from .literals import is_literal

# Of all fairseq models, tasks, criterions and optimizers; a test searches fairseq's source for both kinds.
_EVALUATED = """
adafactor_eps adam_betas adamax_betas lamb_betas wer_args character_filters adaptive_input_cutoff
adaptive_softmax_cutoff left_pad_source left_pad_target encoder_layers decoder_layers encoder_attention
decoder_attention self_attention gated_attention project_input downsample pretrained conv_aggregator_layers
conv_feature_layers feature_encoder_spec xformers_att_config encoder_xformers_att_config
decoder_xformers_att_config pipeline_balance pipeline_encoder_balance pipeline_decoder_balance
pipeline_devices pipeline_encoder_devices pipeline_decoder_devices
"""
_FILES = """
user_dir encoder_embed_path decoder_embed_path embed_path alpha_log bert path lm_path w2v_path seq2seq_path
quantization_config_path results_path restore_file finetune_from_model continue_once save_dir
tensorboard_logdir log_file aim_repo plasma_path pretrained_checkpoint pretrained_xlm_checkpoint
pretrained_mlm_checkpoint load_pretrained_encoder_from load_pretrained_decoder_from
load_pretrained_aux_decoder_from save_predictions baseline_model bpe_codes bpe_merges bpe_vocab
bpe_vocab_file sentencepiece_model sentencepiece_model_path gpt2_encoder_json gpt2_vocab_bpe config_yaml
multitask_config_yaml extra_data fixed_dictionary source_dict target_dict lang_dict
lang_to_offline_shard_ratio sampling_weights_from_file label_dir input destdir trainpref validpref testpref
alignfile bpe_dropout_model
"""
EVALUATED, FILES = set(_EVALUATED.split()), set(_FILES.split())
NO_DATA = "(no data folder was given)"
_GPT2 = "https://dl.fbaipublicfiles.com/fairseq/gpt2_bpe"
_TEXT = "baseline_model bpe_codes bpe_merges bpe_vocab lang_to_offline_shard_ratio sentencepiece_model"
_TEXT += " sentencepiece_model_path seq2seq_path w2v_path"  # must be text, of which none is the empty one
DEFAULTS = {
    "data": NO_DATA,
    "save_dir": "checkpoints",
    "restore_file": "checkpoint_last.pt",
    "config_yaml": "config.yaml",  # in the data folder
    "input": "-",
    "plasma_path": "/tmp/plasma",
    "gpt2_encoder_json": f"{_GPT2}/encoder.json",
    "gpt2_vocab_bpe": f"{_GPT2}/vocab.bpe",
    **dict.fromkeys(_TEXT.split(), ""),
}
"""What fairseq takes where a file is not given, if that is not None."""
MAX_LAYERS = 1_000


def check_settings(path: Path, state: dict) -> None:
    """Raise UserError unless a checkpoint has settings that run nothing and are of a sensible size."""
    cfg, args = state.get("cfg"), state.get("args")
    sections = [cfg.get(name) for name in ("model", "task")] if isinstance(cfg, dict) else [None]
    whole = all(isinstance(each, (dict, Namespace)) and _items(each) for each in sections)
    if not whole and (cfg is not None or not isinstance(args, Namespace)):
        raise UserError(f"{path} is not a checkpoint that fairseq wrote: it has no settings")
    for name, value in every_setting([cfg, args]):
        if name in EVALUATED and not is_literal(value):
            raise UserError(
                f"{path} is refused: its {name} is {shown(value)}, which fairseq would run as Python"
            )
        if isinstance(value, str) and "${" in value:  # it could resolve to anything
            raise UserError(f"{path} is refused: its {name} is {shown(value)}, which fairseq never writes")
        if name.endswith("layers") and type(value) is int and value > MAX_LAYERS:
            raise UserError(f"{path} is refused: its {name} is {value}; the limit is {MAX_LAYERS}")


def every_setting(settings) -> Iterator[tuple[str, object]]:
    """All names in nested settings with their values; items of lists are named "settings"."""
    if isinstance(settings, (list, tuple)):
        pairs = [("settings", inner) for inner in settings]
    else:
        pairs = list(_items(settings).items())
    for name, inner in pairs:
        yield name, inner
        yield from every_setting(inner)


def _items(settings) -> dict:
    """What a group of settings contains, by name; nothing of a single value."""
    if isinstance(settings, Namespace):
        return vars(settings)
    return settings if hasattr(settings, "items") else {}


def without_files(state: dict) -> dict:
    """Replace files, folders and modules in a checkpoint's settings by their defaults, in place."""
    _forget_files([state.get("cfg"), state.get("args")])
    return state


def _forget_files(settings) -> None:
    for inner in settings if isinstance(settings, (list, tuple)) else ():
        _forget_files(inner)
    values = _items(settings)
    for name, value in values.items():
        if isinstance(value, dict) or name not in FILES | {"data"} or value is None:
            _forget_files(value)
        else:  # the key stays: what the command line gives replaces existing keys only
            values[name] = DEFAULTS.get(name)


def check_history(path: Path, state: dict) -> None:
    """Check the training history that fairseq relies on, if there is one."""
    history = state.get("optimizer_history", [{}])
    extra = state.get("extra_state", {})
    whole = isinstance(history, list) and history and all(isinstance(each, dict) for each in history)
    updates = history[-1].get("num_updates", 0) if whole else None
    if not isinstance(updates, int) or updates < 0 or not isinstance(extra, dict):
        raise UserError(
            f"{path} is not a checkpoint that fairseq wrote: it does not tell how far training was"
        )
