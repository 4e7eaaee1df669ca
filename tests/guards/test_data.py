"""Batches of fairseq's tasks: every sentence is in one, in each epoch once, or is named."""

import inspect
import itertools
import logging
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, options, tasks
from fairseq.data import (
    BaseWrapperDataset,
    LanguagePairDataset,
    ListDataset,
    NestedDictionaryDataset,
    SortDataset,
    data_utils,
)
from fairseq.data.iterators import EpochBatchIterator
from fairseq.dataclass.configs import CheckpointConfig
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq.trainer import Trainer
from helpers import binarise, dictionary
from lengths import Lengths

from user_dir.errors import UserError
from user_dir.guards import data

NUMBERS = [1, 8, 9, 461]
LIMITS = [{}, {"max_tokens": 60}, {"max_tokens": 200, "max_sentences": 12}]


def dataset_of(number: int) -> Lengths:
    return Lengths(1 + np.random.default_rng(number).integers(30, size=number))


def ids(batches) -> list[int]:
    return sorted(itertools.chain.from_iterable(np.asarray(batch).tolist() for batch in batches))


# ------------------------------------------------------------------------------------- last batches


@pytest.mark.parametrize("multiple", [1, 8, 50])
@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("number", NUMBERS)
def test_no_sentence_is_lost_and_the_other_batches_are_fairseqs(number, limits, multiple):
    dataset = dataset_of(number)
    order = dataset.ordered_indices()
    batches = dataset.batch_by_size(order, **limits, required_batch_size_multiple=multiple)
    assert np.array_equal(np.concatenate(batches), order)
    lengths = [(len(batch), dataset.sizes[batch].max()) for batch in batches]
    assert all(size < multiple or size % multiple == 0 for size, _ in lengths)
    assert all(size <= limits.get("max_sentences", size) for size, _ in lengths)
    assert all(size * longest <= limits.get("max_tokens", 10**9) for size, longest in lengths)
    settings = {**limits, "num_tokens_vec": dataset.sizes[order], "required_batch_size_multiple": multiple}
    own = data_utils.batch_by_size.__wrapped__(order, dataset.num_tokens, **settings)
    assert len(own) in (len(batches), len(batches) - 1)
    assert all(map(np.array_equal, own, batches))
    if (number, limits, multiple) == (461, {}, 8):
        assert len(ids(own)) == 456, "fairseq alone loses none any more"


@pytest.mark.parametrize("number", [1, 9, 461])
@pytest.mark.parametrize("shards", [1, 2, 3])
def test_workers_share_all_sentences(number, shards):
    """Each sees as many batches as the others, empty ones included; together they see each sentence once."""
    task = FairseqTask(None)
    for epoch in (1, 2):
        seen = []
        for shard in range(shards):
            iterator = task.get_batch_iterator(
                dataset_of(number),
                max_tokens=60,
                required_batch_size_multiple=8,
                num_shards=shards,
                shard_id=shard,
                epoch=epoch,
                disable_iterator_cache=True,
            )
            batches = list(iterator.next_epoch_itr(shuffle=True))
            assert len(batches) == len(iterator)
            seen += [batch["id"] for batch in batches if batch]
        assert ids(seen) == list(range(number))


class AnyLength(torch.nn.Linear):
    """A model, as far as batches go."""

    def max_positions(self):
        return None


TASKS = {
    "translation": "--arch adaptively_sparse_transformer --source-lang de --target-lang en",
    "language_modeling": "--arch transformer_lm --sample-break-mode complete --tokens-per-sample 20",
    "masked_lm": "--arch masked_lm --sample-break-mode complete --tokens-per-sample 20 --criterion masked_lm",
}


@pytest.mark.parametrize(("name", "number"), [("translation", 1), *((name, 9) for name in TASKS)])
def test_every_task_trains_and_validates_on_every_sentence(tmp_path, name, number):
    sentences = [[4 + i % 20] * (1 + i % 11) + [2] for i in range(number)]
    one_side = name != "translation"
    for language in [""] if one_side else [".de", ".en"]:
        dictionary().save(str(tmp_path / f"dict{language}.txt"))
        for split in ("train", "valid"):
            binarise(tmp_path / f"{split}{'' if one_side else '.de-en'}{language}", sentences)
    words = [str(tmp_path), "--task", name, *TASKS[name].split(), "--cpu", "--max-tokens", "99"]
    args = options.parse_args_and_arch(options.get_training_parser(), [*words, "--num-workers", "0"])
    cfg = convert_namespace_to_omegaconf(args)
    assert cfg.dataset.required_batch_size_multiple == 8, "fairseq's default"
    task = tasks.setup_task(cfg.task)
    task.load_dataset("valid")
    trainer = Trainer(cfg, task, AnyLength(1, 1), torch.nn.Linear(1, 1))
    for iterator in (trainer.get_train_iterator(1), trainer.get_valid_iterator("valid")):
        samples = len(iterator.dataset)  # of language models, blocks of several sentences
        assert samples == number or (one_side and samples > 1)
        batches = list(iterator.next_epoch_itr(shuffle=False))
        assert ids(batch["id"] for batch in batches) == list(range(samples))


# ----------------------------------------------------------------------------------- resumed epochs


class Process:
    """A training process, begun in an epoch; by the guard or by fairseq alone."""

    def __init__(self, epoch: int, alone: bool = False, reusable: bool = True, **settings):
        self.task, self.begun = FairseqTask(None), epoch
        self.dataset = Lengths(1 + np.arange(300) % 7)
        self.dataset.can_reuse_epoch_itr_across_epochs = reusable
        own = FairseqTask.get_batch_iterator
        self.make = inspect.unwrap(own) if alone else own
        self.settings = {"max_tokens": 20, "required_batch_size_multiple": 8, "seed": 5, **settings}

    def iterator(self, epoch: int) -> EpochBatchIterator:
        return self.make(self.task, self.dataset, epoch=epoch, **self.settings)

    def epochs(self, last: int, position: int = 0) -> list[list[tuple]]:
        """The batches of the epochs up to ``last``; the first begins with batch ``position``."""
        epochs, epoch = [], self.begun
        while epoch <= last:
            iterator = self.iterator(epoch)
            if position and not epochs:
                iterator.load_state_dict({"version": 2, "epoch": epoch, "iterations_in_epoch": position})
            epochs.append(batches_of(iterator, True))
            assert self.dataset.epoch == iterator.epoch == epoch
            epoch = iterator.next_epoch_idx
        return epochs


def batches_of(iterator: EpochBatchIterator, shuffle: bool) -> list[tuple]:
    return [tuple(batch["id"].tolist()) for batch in iterator.next_epoch_itr(shuffle=shuffle)]


@pytest.mark.parametrize("shard", [None, 0, 1])
@pytest.mark.parametrize(("epoch", "position"), [(1, 4), (2, 0), (2, 3), (3, 1)])
def test_a_resumed_training_has_the_batches_that_were_left(epoch, position, shard):
    settings = {} if shard is None else {"num_shards": 2, "shard_id": shard}
    through = Process(1, **settings).epochs(4)
    resumed = Process(epoch, **settings).epochs(4, position)
    assert resumed == [through[epoch - 1][position:], *through[epoch:]]
    if shard is None:
        assert all(ids(drawn) == list(range(300)) for drawn in through)


def test_fairseq_alone_has_others():
    """If this fails, the guard can go."""
    through, resumed = Process(1, alone=True).epochs(2), Process(2, alone=True).epochs(2)
    assert sorted(map(sorted, through[1])) != sorted(map(sorted, resumed[0]))


@pytest.mark.parametrize("settings", [{}, {"update_epoch_batch_itr": True}, {"disable_iterator_cache": True}])
def test_a_training_that_is_not_stopped_is_fairseqs(settings):
    assert Process(1, **settings).epochs(3) == Process(1, alone=True, **settings).epochs(3)


# -------------------------------------------------------------------------------- epochs in workers


class Drawn(BaseWrapperDataset):
    """Items that depend on the epoch."""

    def __init__(self, dataset):
        super().__init__(dataset)
        self.epoch = 1

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __getitem__(self, index):
        return 100 * self.epoch + self.dataset[index]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_each_epoch_is_drawn_anew_by_workers(workers):
    def iterator() -> EpochBatchIterator:
        drawn = Drawn(ListDataset(list(range(6)), [1] * 6))
        nested = SortDataset(NestedDictionaryDataset({"net_input": {"numbers": drawn}}), [list(range(6))])
        settings = {"num_workers": workers, "reuse_dataloader": True, "buffer_size": workers}
        collate = lambda items: [item["net_input.numbers"] for item in items]  # noqa: E731
        return EpochBatchIterator(nested, collate, [[0, 1], [2, 3], [4, 5]], **settings)

    batches = iterator()
    for epoch in (1, 2, 3):
        numbers = sorted(itertools.chain.from_iterable(batches.next_epoch_itr()))
        assert numbers == [100 * epoch + i for i in range(6)]
    begun = next(batches.next_epoch_itr())
    resumed = iterator()
    resumed.dataset.set_epoch(4)  # as by FairseqTask.get_batch_iterator
    resumed.load_state_dict(batches.state_dict())
    numbers = sorted([*begun, *itertools.chain.from_iterable(resumed.next_epoch_itr())])
    assert numbers == [400 + i for i in range(6)]


# ----------------------------------------------------------------------------------- long sentences

LENGTHS = [4, 11, 7, 4, 2, 12, 1, 5, 4]  # </s> comes on top


def translation_task(subset: str) -> TranslationTask:
    """fairseq's task, with sources of these lengths and targets of one or two words."""
    words = dictionary()
    task = TranslationTask(TranslationConfig(), words, words)
    lengths = [LENGTHS, [1 + length % 2 for length in LENGTHS]]
    sides = [[torch.tensor([5] * length + [words.eos()]) for length in side] for side in lengths]
    sizes = [np.array([len(tokens) for tokens in side]) for side in sides]
    pairs = LanguagePairDataset(sides[0], sizes[0], words, sides[1], sizes[1], words, shuffle=False)
    task.datasets[subset] = pairs
    return task


def batches(limit=(9, 9), subset="test", **settings):
    task = translation_task(subset)
    return task.get_batch_iterator(
        task.dataset(subset), max_positions=limit, **{"max_tokens": 100, **settings}
    )


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ((12, 9), r"line 6 of test .* 12 source or 9 target .* has 13 source and 2 target"),
        ((9, 9), r"lines 2 and 6 of test .* 9 source or 9 target .*line 2 has 12 source"),
        ((99, 2), r"lines 2, 3, 7 and 8 of test .* 99 source or 2 target"),
    ],
)
def test_what_is_too_long_is_named(limit, message):
    with pytest.raises(UserError, match=message):
        batches(limit)


def test_what_training_leaves_out_is_counted(caplog):
    with caplog.at_level(logging.WARNING):
        assert ids(batch["id"] for batch in batches((13, 3)).next_epoch_itr()) == list(range(len(LENGTHS)))
        assert not caplog.records
        iterator = batches(ignore_invalid_inputs=True, subset="train")
    kept = ids(batch["id"] for batch in iterator.next_epoch_itr())
    assert kept == [number for number, length in enumerate(LENGTHS) if length < 9]
    (record,) = caplog.records
    assert "lines 2 and 6 of train" in record.message and record.message.endswith("left out, 2 of 9")
    with pytest.raises(UserError, match="leaves no sentence"):
        batches((1, 1), ignore_invalid_inputs=True, subset="train")


class Validated(SimpleNamespace):
    """What a trainer has that validates sentences of ``valid``, and what its task logs of one."""

    def get_valid_iterator(self, subset):
        return batches(subset=subset, limit=(99, 99))

    def _prepare_sample(self, sample):
        assert sample["id"].numel() == 1, "one sentence is enough"
        return sample, False

    def reduce_metrics(self, logs, criterion):
        metrics.log_scalar("loss", logs[0]["loss"])
        metrics.log_scalar("_counts", logs[0]["counts"])
        if logs[0]["counts"] > 0:  # as fairseq does for BLEU
            metrics.log_derived("bleu", lambda meters: meters["_counts"].sum)


@pytest.mark.parametrize(
    ("name", "there"), [("loss", True), ("bleu", True), ("BLEU", False), ("_counts", False)]
)
def test_the_metric_of_the_best_checkpoint_is_computed_once_before_a_training(name, there):
    module, dataset = torch.nn.Linear(1, 1), SimpleNamespace(disable_validation=False, valid_subset="valid")
    trainer = Validated(cfg=SimpleNamespace(dataset=dataset), model=module, criterion=module)
    trainer.get_criterion = lambda: module
    trainer.task, trainer.valid_step = trainer, lambda *_: (0, 1, {"loss": 2.0, "counts": 0, "name": "x"})

    def check():
        return data.check_and_load_checkpoint(
            lambda *_: "loaded", CheckpointConfig(best_checkpoint_metric=name), trainer
        )

    if there:
        assert check() == "loaded"
    else:
        with pytest.raises(
            UserError, match=f"--best-checkpoint-metric {name} is not computed, only bleu, loss"
        ):
            check()
    trainer.post_validate = None  # which may add a metric
    assert check() == "loaded"


@pytest.mark.parametrize("disabled", [False, True])
def test_validation_data_is_checked_before_a_training_loads_anything(disabled):
    checked = []
    dataset = SimpleNamespace(disable_validation=disabled, valid_subset="valid,valid1")

    def check(subset):
        checked.append(subset)
        if subset == "valid1":
            batches(subset=subset)

    trainer = SimpleNamespace(cfg=SimpleNamespace(dataset=dataset), get_valid_iterator=check)
    with pytest.raises((SystemExit, AttributeError)) as ended:
        checkpoint_utils.load_checkpoint(None, trainer)
    if disabled:
        assert not checked and ended.type is AttributeError, "it went on"
    else:
        assert checked == ["valid", "valid1"] and ended.type is UserError
        assert "lines 2 and 6 of valid1" in ended.value.code
