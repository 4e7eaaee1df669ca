"""Every sentence is in a batch, whatever the multiple that batches should have."""

import itertools

import numpy as np
import pytest
import torch
from fairseq import options, tasks
from fairseq.data import data_utils
from fairseq.data.iterators import EpochBatchIterator
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.trainer import Trainer
from helpers import binarise, dictionary
from lengths import Lengths

FAIRSEQS_OWN = data_utils.batch_by_size.__wrapped__
NUMBERS = [1, 7, 8, 9, 461]
LIMITS = [{}, {"max_tokens": 60}, {"max_sentences": 20}, {"max_tokens": 200, "max_sentences": 12}]


def dataset_of(number: int, kind=Lengths) -> Lengths:
    return kind(1 + np.random.default_rng(number).integers(30, size=number))


class BySlowCalls(Lengths):
    """The same without lengths as an array, as some of fairseq's datasets are."""

    def num_tokens_vec(self, indices):
        raise NotImplementedError


def ids(batches) -> list[int]:
    return sorted(itertools.chain.from_iterable(np.asarray(batch).tolist() for batch in batches))


@pytest.mark.parametrize("multiple", [1, 2, 8, 50])
@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("kind", [Lengths, BySlowCalls])
def test_no_sentence_is_lost_and_the_other_batches_are_fairseqs(kind, number, limits, multiple):
    dataset = dataset_of(number, kind)
    order = dataset.ordered_indices()
    batches = dataset.batch_by_size(order, **limits, required_batch_size_multiple=multiple)
    assert np.array_equal(np.concatenate(batches), order)
    lengths = [(len(batch), dataset.sizes[batch].max()) for batch in batches]
    assert all(size < multiple or size % multiple == 0 for size, _ in lengths)
    assert all(size <= limits.get("max_sentences", size) for size, _ in lengths)
    assert all(size * longest <= limits.get("max_tokens", 10**9) for size, longest in lengths)
    vector = dataset.sizes[order] if kind is Lengths else None
    given = {**limits, "num_tokens_vec": vector, "required_batch_size_multiple": multiple}
    own = FAIRSEQS_OWN(order, dataset.num_tokens, **given)
    assert len(own) in (len(batches), len(batches) - 1)
    assert all(map(np.array_equal, own, batches))


def test_fairseq_alone_loses_some():
    """If this fails, the guard can go."""
    given = {"num_tokens_vec": np.ones(461, dtype=np.int64), "required_batch_size_multiple": 8}
    assert len(ids(FAIRSEQS_OWN(np.arange(461), None, **given))) == 456


def test_no_sentences_are_no_batches():
    assert dataset_of(0).batch_by_size(np.arange(0), max_tokens=9, required_batch_size_multiple=8) == []


def test_an_iterator_instead_of_an_array():
    batches = data_utils.batch_by_size(iter(range(9)), lambda i: 1, required_batch_size_multiple=8)
    assert [list(batch) for batch in batches] == [list(range(8)), [8]]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("grouped", [False, True])
def test_workers_share_all_sentences(number, shards, grouped):
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
                grouped_shuffling=grouped,
                disable_iterator_cache=True,
            )
            batches = list(iterator.next_epoch_itr(shuffle=True))
            assert len(batches) == len(iterator)
            seen += [batch["id"] for batch in batches if batch]
        assert ids(seen) == list(range(number))


def test_fairseq_alone_loses_the_last_group():
    """If this fails, this part of the guard can go."""
    alone = EpochBatchIterator.ordered_batches.__wrapped__
    iterator = EpochBatchIterator(
        dataset_of(9), lambda samples: samples, [[i] for i in range(9)], num_shards=2, grouped_shuffling=True
    )
    assert len(ids(alone(iterator, 1, False, True))) == 4


class AnyLength(torch.nn.Linear):
    """A model, as far as batches go."""

    def max_positions(self):
        return None


TASKS = {
    "translation": "--arch adaptively_sparse_transformer --source-lang de --target-lang en",
    "language_modeling": "--arch transformer_lm --sample-break-mode complete --tokens-per-sample 20",
    "masked_lm": "--arch masked_lm --sample-break-mode complete --tokens-per-sample 20 --criterion masked_lm",
    "translation_multi_simple_epoch": "--arch transformer --langs de,en --lang-pairs de-en",
}


@pytest.mark.parametrize(
    ("name", "number"),
    [*(("translation", number) for number in NUMBERS), *((name, 9) for name in list(TASKS)[1:])],
)
def test_every_task_trains_and_validates_on_every_sentence(tmp_path, name, number):
    sentences = [[4 + i % 20] * (1 + i % 11) + [2] for i in range(number)]
    one_side = name in ("language_modeling", "masked_lm")
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
