"""Translation with BPE dropout (Provilkov et al. 2020): each epoch segments the training sentences anew."""

import logging
import os
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

import torch
from fairseq import utils
from fairseq.data import BaseWrapperDataset
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import II

from ..errors import UserError

logger = logging.getLogger(__name__)

CHECKED = 200  # sentences that are segmented without dropout when the data is loaded, to compare


@dataclass
class BPEDropoutConfig(TranslationConfig):
    """The settings of fairseq's translation task, and those of BPE dropout."""

    bpe_dropout: float = field(default=0.1, metadata={"help": "probability that a merge is left out"})
    bpe_dropout_model: Optional[str] = field(
        default=None,
        metadata={"help": "BPE model of sentencepiece (default: spm.model in the folder above the data)"},
    )
    seed: int = II("common.seed")


@register_task("translation_with_bpe_dropout", dataclass=BPEDropoutConfig)
class BPEDropoutTask(TranslationTask):
    """fairseq's translation task, with BPE dropout (https://aclanthology.org/2020.acl-main.170) in training.

    Source and target are restored to text and segmented anew whenever a sentence is drawn, by sentencepiece,
    which leaves out each merge with probability ``bpe_dropout``. Within a process and its workers, the
    segmentation depends on seed, epoch and sentence alone; it differs between processes. Batches are made
    by the lengths without dropout.
    """

    def load_dataset(self, split, epoch=1, combine=False, **kwargs):
        """See fairseq; the training data is wrapped."""
        super().load_dataset(split, epoch=epoch, combine=combine, **kwargs)
        if split == self.cfg.train_subset and self.cfg.bpe_dropout != 0:
            self.datasets[split] = self._with_dropout(self.datasets[split])

    def _with_dropout(self, dataset) -> "BPEDropoutDataset":
        cfg = self.cfg
        beside = Path(os.path.abspath(utils.split_paths(cfg.data)[0])).parent / "spm.model"
        path = Path(cfg.bpe_dropout_model or beside)
        model = open_bpe_model(path)
        sides = {
            "source": Segmenter(model, self.source_dictionary, cfg.bpe_dropout, cfg.max_source_positions),
            "target": Segmenter(model, self.target_dictionary, cfg.bpe_dropout, cfg.max_target_positions),
        }
        some = [dataset[i] for i in range(min(CHECKED, len(dataset)))]
        for key, side in sides.items():
            kept = sum(side.text_of(pair[key]) is not None for pair in some)
            if 10 * kept < 9 * len(some):
                raise UserError(
                    f"{path} segments {len(some) - kept} of the first {len(some)} {key} sentences of "
                    f"{cfg.data} otherwise; give the sentencepiece model of this data (--bpe-dropout-model)"
                )
        logger.info("BPE dropout %g by %s", cfg.bpe_dropout, path)
        return BPEDropoutDataset(dataset, sides, cfg.seed)


class BPEDropoutDataset(BaseWrapperDataset):
    """A dataset of sentence pairs that are segmented anew, differently in each epoch."""

    def __init__(self, dataset, sides: "dict[str, Segmenter]", seed: int):
        super().__init__(dataset)
        self.sides, self.seed, self.epoch = sides, seed, 1

    def set_epoch(self, epoch):
        """See fairseq."""
        super().set_epoch(epoch)
        self.epoch = epoch

    def __getitem__(self, index):
        from sentencepiece import set_random_generator_seed  # here, as other tasks do without it

        example = dict(self.dataset[index])
        set_random_generator_seed(zlib.crc32(f"{self.seed} {self.epoch} {index}".encode()) >> 1)
        for key, segmenter in self.sides.items():
            example[key] = segmenter(example[key])
        return example


class Segmenter:
    """Segments sentences anew; they are given as the indices of their pieces in a fairseq dictionary.

    A sentence stays as it is if its text cannot be restored (it has unknown pieces, or another segmentation),
    or if its new segmentation has a piece outside of the dictionary, or more than ``limit`` symbols.
    """

    def __init__(self, model, dictionary, dropout: float, limit: int):
        self.model, self.dictionary, self.dropout, self.limit = model, dictionary, dropout, limit
        self.numbers = [dictionary.index(model.id_to_piece(number)) for number in range(len(model))]

    def text_of(self, sentence: torch.Tensor) -> str | None:
        """The text of a sentence (n,), or None if the model would segment it differently."""
        numbers = sentence.tolist()
        if numbers[-1:] == [self.dictionary.eos()]:
            numbers.pop()
        pieces = [self.dictionary[number] for number in numbers]
        text = self.model.decode(pieces)
        return text if self.model.encode(text, out_type=str) == pieces else None

    def __call__(self, sentence: torch.Tensor) -> torch.Tensor:
        """A sentence (n,) segmented anew (m,), or itself."""
        text = self.text_of(sentence)
        if text is None:
            return sentence
        drawn = self.model.encode(text, enable_sampling=True, alpha=self.dropout, nbest_size=-1)
        numbers = [self.numbers[piece] for piece in drawn]
        numbers += [last for last in sentence[-1:].tolist() if last == self.dictionary.eos()]
        if self.dictionary.unk() in numbers or len(numbers) > self.limit:
            return sentence
        return sentence.new_tensor(numbers)


def open_bpe_model(path: Path):
    """A sentencepiece processor; UserError if there is no model, or it is not of BPE."""
    from sentencepiece import SentencePieceProcessor

    if not path.is_file():
        raise UserError(f"no sentencepiece model {path}; name that of the data by --bpe-dropout-model")
    try:
        model = SentencePieceProcessor(model_file=str(path))
    except (RuntimeError, OSError) as error:
        raise UserError(f"{path} is not a sentencepiece model: {error}") from None
    words = (model.id_to_piece(number).strip("▁") for number in range(len(model)))
    whole = max(filter(str.isalpha, words), key=len, default="")
    if max(map(len, model.encode(whole, out_type=str, enable_sampling=True, alpha=1.0, nbest_size=-1))) > 1:
        raise UserError(f"{path} is not a BPE model; only these have merges that can be left out")
    return model
