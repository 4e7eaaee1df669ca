"""Initial training configs for a corpus, sized by its training text."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from ..files import ROOT, command_words, write_text
from .corpus import Corpus, sentence_lengths

VARIANTS = {
    "softmax": ("softmax", "softmax, the baseline"),
    "entmax15": ("entmax15", "1.5-entmax in every head"),
    "alpha_entmax": ("entmax", "a learned α per head"),
}
SMALL, LARGE = 100_000, 1_000_000  # training pairs from which on a larger model, and less dropout, pay off
FULL = 0.85  # the share of a batch that is not padding, on Multi30k and IWSLT
TIMES = 1.2  # max_len_a in validation: pieces per piece of the source, beside max_len_b
PER_VALIDATION = 100  # minimum number of updates between validations

ALPHA_LOG = """\
  alpha_log: ${checkpoint.save_dir}/alpha.jsonl
  alpha_log_interval: 100
"""


class Size(NamedTuple):
    """Settings that depend on the number of training pairs, as starting points of a search."""

    title: str
    model: str
    dropout: float
    max_tokens: int
    lr: float
    epochs: int  # maximum; early stopping ends most runs earlier

    @classmethod
    def of(cls, pairs: int, triplets: bool = False) -> Size:
        """Follow the recipes of Multi30k (experiments/tuning.yaml), IWSLT and WMT in configs/."""
        base = "Transformer-base", "adaptively_sparse_transformer"
        if triplets:
            return cls("The tiny post-editor", "adaptively_sparse_post_editor_tiny", 0.1, 2048, 0.0007, 30)
        if pairs < SMALL:
            return cls("The tiny model", "adaptively_sparse_transformer_tiny", 0.1, 2048, 0.003, 30)
        return cls(*base, 0.3, 8192, 0.0007, 60) if pairs < LARGE else cls(*base, 0.1, 8192, 0.0007, 20)


def write_configs(corpus: Corpus, root: Path = ROOT) -> Path:
    """Write ``configs/CORPUS/*.yaml`` but those that exist; returns the path of ``alpha_entmax.yaml``."""
    folder = root / "configs" / corpus.name
    common = {"train": " ".join(command_words("train")), "name": corpus.name}
    settings = _settings(corpus, root)
    base = _template("post_editor" if corpus.description.triplets else "base")
    texts = {"base": base.format(**common, **settings)}
    source, target = corpus.languages
    for variant, (normalizer, described) in VARIANTS.items():
        texts[variant] = _template("variant").format(
            **common,
            variant=variant,
            about=f"{settings['title']} on {corpus.name}, {source} to {target}, with {described}.",
            normalizer=normalizer,
            alpha=ALPHA_LOG if normalizer == "entmax" else "",
            save_dir=_scalar(f"checkpoints/{corpus.name}/{variant}"),
        )
    for path, text in ((folder / f"{name}.yaml", text) for name, text in texts.items()):
        if not path.exists():
            write_text(path, text)
    return folder / "alpha_entmax.yaml"


def _template(name: str) -> str:
    return Path(__file__).with_name(f"starter_{name}.txt").read_text("utf-8")


def _settings(corpus: Corpus, root: Path) -> dict[str, Any]:
    """The values that fill the template of ``base.yaml``."""
    sides = [sentence_lengths(corpus.bin, "train", corpus.languages, side) for side in corpus.languages]
    longer = np.maximum(*sides)  # the lengths that fairseq fills batches by
    size = Size.of(len(longer), corpus.description.triplets)
    per_epoch = max(1, math.ceil(longer.sum() / (FULL * size.max_tokens)))
    updates = min(max(size.epochs * per_epoch, 1000), 100_000)
    every = max(1, math.ceil(PER_VALIDATION / per_epoch))
    interval = ""
    if every > 1:
        interval = f"_interval: {every}  # epochs: one has only about {per_epoch} updates\n"
    source, target = map(_scalar, corpus.languages)
    return {
        **size._asdict(),
        "data": _scalar(str(corpus.bin.relative_to(root) if corpus.bin.is_relative_to(root) else corpus.bin)),
        "source": source,
        "target": target,
        "bleu": validation_bleu(corpus),
        "warmup": min(4000, updates // 4),
        "validate_interval": interval and f"  validate{interval}",
        "save_interval": interval and f"  save{interval}",
        "updates": updates,
        "epochs": round(updates / per_epoch),
        "per_epoch": per_epoch,
    }


def validation_bleu(corpus: Corpus) -> str:
    """The lines of a config's section ``task`` that make fairseq score validation."""
    sides = [sentence_lengths(corpus.bin, "valid", corpus.languages, side) for side in corpus.languages]
    beyond = max(10, math.ceil((sides[1] - 1 - TIMES * sides[0]).max(initial=0)))
    search = f'{{"beam": 1, "max_len_a": {TIMES}, "max_len_b": {beyond}}}'
    lines = ["eval_bleu: true", f"eval_bleu_args: '{search}'", "eval_bleu_remove_bpe: sentencepiece"]
    if corpus.description.tokenised:
        lines.append("eval_tokenized_bleu: true  # on tokens of the release")
    return "".join(f"  {line}\n" for line in lines)


def _scalar(text: str) -> str:
    """A string as YAML, quoted if needed: the language ``no`` would be read as false."""
    return yaml.safe_dump(text, allow_unicode=True, width=math.inf).removesuffix("...\n").strip()
