"""Initial training configs for a corpus, sized by its training text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from ..checkout import ROOT, command_words
from ..errors import UserError
from ..io import write_text
from ..languages import language
from .binarised import sentence_lengths
from .corpus import Corpus

VARIANTS = {
    "softmax": ("softmax", "softmax, the baseline"),
    "entmax15": ("entmax15", "1.5-entmax in every head"),
    "alpha_entmax": ("entmax", "a learned α per head"),
}
SMALL, LARGE = 100_000, 1_000_000  # training pairs above which a larger model is worthwhile
FULL = 0.85  # the share of a batch that is not padding, on Multi30k and IWSLT
TIMES = 1.2  # a translation in validation ends after so many pieces for each of its source, and some
PER_VALIDATION = 100  # minimum number of updates


@dataclass(frozen=True)
class Size:
    """Settings that depend on the number of training pairs, as starting points of a search."""

    model: str
    dropout: float
    max_tokens: int
    lr: float
    epochs: int  # maximum; early stopping ends most runs earlier

    @classmethod
    def of(cls, pairs: int, triplets: bool = False) -> Size:
        """Follow the recipes of Multi30k (experiments/tuning.yaml), IWSLT and WMT in configs/."""
        if triplets:
            return cls("adaptively_sparse_post_editor_tiny", 0.1, 2048, 0.0007, 30)
        if pairs < SMALL:
            return cls("adaptively_sparse_transformer_tiny", 0.1, 2048, 0.003, 30)
        if pairs < LARGE:
            return cls("adaptively_sparse_transformer", 0.3, 8192, 0.0007, 60)
        return cls("adaptively_sparse_transformer", 0.1, 8192, 0.0007, 20)


def write_configs(corpus: Corpus, root: Path = ROOT) -> Path:
    """Write ``configs/CORPUS/{base,softmax,entmax15,alpha_entmax}.yaml``; returns the last.

    Args:
        corpus: prepared corpus.
        root: the folder that paths in configs are relative to.

    Raises:
        UserError: one of them already exists; existing settings are not overwritten.
    """
    folder = root / "configs" / corpus.name
    for name in ("base", *VARIANTS):
        if (folder / f"{name}.yaml").exists():
            raise UserError(f"--config: there is {folder / name}.yaml already; edit it, or remove the folder")
    source, target = corpus.languages
    title = f"{corpus.name}, {source} to {target}"
    size, updates = _size(corpus)
    write_text(folder / "base.yaml", _base(corpus, root, size, updates))
    for variant, (normalizer, described) in VARIANTS.items():
        write_text(
            folder / f"{variant}.yaml", _variant(corpus.name, variant, normalizer, described, title, size)
        )
    return folder / "alpha_entmax.yaml"


def _size(corpus: Corpus) -> tuple[Size, int]:
    """The settings, and the resulting number of updates per epoch."""
    sides = [sentence_lengths(corpus.bin, "train", corpus.languages, side) for side in corpus.languages]
    longer = np.maximum(*sides)  # the lengths that fairseq fills batches by
    size = Size.of(len(longer), corpus.description.triplets)
    return size, max(1, math.ceil(longer.sum() / (FULL * size.max_tokens)))


def _base(corpus: Corpus, root: Path, size: Size, per_epoch: int) -> str:
    data = corpus.bin.relative_to(root) if corpus.bin.is_relative_to(root) else corpus.bin
    updates = min(max(size.epochs * per_epoch, 1000), 100_000)
    every = max(1, math.ceil(PER_VALIDATION / per_epoch))
    intervals = ""
    if every > 1:
        intervals = f"  {{key}}: {every}  # epochs: one has only about {per_epoch} updates\n"
    source, target = corpus.languages
    return BASE.format(
        train=" ".join(command_words("train", "train")),
        name=corpus.name,
        data=_scalar(str(data)),
        source=_scalar(source),
        target=_scalar(target),
        bleu=validation_bleu(corpus),
        model=size.model,
        layers=_BERT if corpus.description.triplets else _PRE_NORM,
        dropout=size.dropout,
        warmup=min(4000, updates // 4),
        max_tokens=size.max_tokens,
        validate_interval=intervals.format(key="validate_interval"),
        updates=updates,
        epochs=round(updates / per_epoch),
        per_epoch=per_epoch,
        lr=size.lr,
        save_interval=intervals.format(key="save_interval"),
    )


def validation_bleu(corpus: Corpus) -> str:
    """The lines of a config's section ``task`` that make fairseq score validation suitably for the corpus.

    sacrebleu's tokenizer is that of the target language (``guards/validation_bleu.py``). Tokens of a release
    in a language without spaces, which Moses does not detokenise, are scored as they are.
    """
    target = language(corpus.languages[1])
    search = f'{{"beam": 1, "max_len_a": {TIMES}, "max_len_b": {_pieces_beyond(corpus)}}}'
    lines = ["eval_bleu: true", f"eval_bleu_args: '{search}'"]
    lines.append("eval_bleu_remove_bpe: sentencepiece")
    if corpus.description.tokenised and target.spaced:
        lines += ["eval_bleu_detok: moses", f'eval_bleu_detok_args: \'{{"target_lang": "{target.moses}"}}\'']
    elif corpus.description.tokenised:
        lines.append("eval_tokenized_bleu: true  # on tokens of the release")
    return "".join(f"  {line}\n" for line in lines)


def _pieces_beyond(corpus: Corpus) -> int:
    """The most pieces of a validation reference beyond :data:`TIMES` its source, at least 10."""
    source, target = (
        sentence_lengths(corpus.bin, "valid", corpus.languages, side) for side in corpus.languages
    )
    return max(10, math.ceil((target - 1 - TIMES * source).max(initial=0)))


def _variant(name: str, variant: str, normalizer: str, described: str, title: str, size: Size) -> str:
    alpha = ""
    if normalizer == "entmax":
        alpha = "  alpha_log: ${checkpoint.save_dir}/alpha.jsonl\n  alpha_log_interval: 100\n"
    model = "The tiny model" if size.model.endswith("tiny") else "Transformer-base"
    if "post_editor" in size.model:
        model = "The tiny post-editor"
    return VARIANT.format(
        train=" ".join(command_words("train", "train")),
        name=name,
        variant=variant,
        about=f"{model} on {title}, with {described}.",
        normalizer=normalizer,
        alpha=alpha,
        save_dir=_scalar(f"checkpoints/{name}/{variant}"),
    )


def _scalar(text: str) -> str:
    """A string as YAML, quoted if needed: the language ``no`` would be read as false."""
    return yaml.safe_dump(text, allow_unicode=True, width=math.inf).removesuffix("...\n").strip()


_PRE_NORM = """\
  share_all_embeddings: true
  encoder_normalize_before: true  # pre-norm, as in the paper
  decoder_normalize_before: true
"""
_BERT = """\
  bert: null  # a folder of Hugging Face's, or a checkpoint of adaptively_sparse_masked_lm
  share_self_attention: true
"""

BASE = """\
# {train} configs/{name}/alpha_entmax.yaml   (or softmax.yaml, entmax15.yaml)
#
# What these three share; each names this file in its defaults. Written by prepare.py --config for the size of
# the training text: a place to start. Dropout and learning rate are worth a search on validation.

common:
  seed: 1
  log_interval: 100

task:
  _name: translation
  data: {data}
  source_lang: {source}
  target_lang: {target}
  # BLEU of greedy translations. Off: task.eval_bleu=false, and checkpoint_best.pt by the loss (below)
{bleu}
model:
  _name: {model}
  dropout: {dropout}
{layers}
criterion:
  _name: label_smoothed_cross_entropy
  label_smoothing: 0.1

optimizer:
  _name: adam
  adam_betas: (0.9, 0.98)
  adam_eps: 1e-9

lr_scheduler:
  _name: inverse_sqrt
  warmup_updates: {warmup}
  warmup_init_lr: 1e-7

dataset:
  max_tokens: {max_tokens}
{validate_interval}
optimization:
  max_update: {updates}  # at most: about {epochs} epochs of {per_epoch} updates
  lr: [{lr}]

checkpoint:
  keep_last_epochs: 5  # to average
  # checkpoint_best.pt is the best by BLEU. By the loss: checkpoint.best_checkpoint_metric=loss
  # checkpoint.maximize_best_checkpoint_metric=false
  best_checkpoint_metric: bleu
  maximize_best_checkpoint_metric: true
  patience: 5  # early stopping after so many validations without a better BLEU. Off: checkpoint.patience=-1
{save_interval}
hydra:
  run:
    dir: ${{checkpoint.save_dir}}  # hydra's log file goes there
  job:
    chdir: false
  output_subdir: null
"""

VARIANT = """\
# {train} configs/{name}/{variant}.yaml
#
# {about}

defaults: [_self_, base]

model:
  attention_normalizer: {normalizer}
{alpha}
checkpoint:
  save_dir: {save_dir}
"""
