"""Translation with BPE dropout: what is drawn, from which seed, and what is refused."""

import numpy as np
import pytest
import sentencepiece
import torch
from fairseq.data import Dictionary, LanguagePairDataset, ListDataset
from fairseq.data.iterators import EpochBatchIterator

from user_dir.errors import UserError
from user_dir.tasks.bpe_dropout import (
    BPEDropoutConfig,
    BPEDropoutDataset,
    BPEDropoutTask,
    Segmenter,
    open_bpe_model,
)

TEXT = ["der hund schläft unter dem haus", "die hunde schlafen unter den häusern", "unter dem haus"] * 20


def learn(folder, **settings):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_prefix=str(folder / "spm"), hard_vocab_limit=False, **settings
    )
    return folder / "spm.model"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return learn(tmp_path_factory.mktemp("bpe"), vocab_size=60, model_type="bpe")


@pytest.fixture(scope="module")
def model(path):
    return open_bpe_model(path)


@pytest.fixture(scope="module")
def words(model):
    words = Dictionary()
    for number in range(3, len(model)):
        words.add_symbol(model.id_to_piece(number))
    return words


def numbers(words, pieces):
    return torch.tensor([words.index(piece) for piece in pieces] + [words.eos()])


@pytest.fixture
def pairs(model, words):
    sides = [[numbers(words, model.encode(text, out_type=str)) for text in TEXT[:3]] for _ in range(2)]
    lengths = np.array([len(sentence) for sentence in sides[0]])
    lists = [ListDataset(side, lengths) for side in sides]
    return LanguagePairDataset(lists[0], lengths, words, lists[1], lengths, words)


def with_dropout(pairs, model, words, seed=1, dropout=0.3):
    segmenter = Segmenter(model, words, dropout, limit=1000)
    return BPEDropoutDataset(pairs, {"source": segmenter, "target": segmenter}, seed)


def drawn(dataset, epoch, order=(0, 1, 2)):
    dataset.set_epoch(epoch)
    examples = {index: dataset[index] for index in order}
    return [examples[index][key].tolist() for index in sorted(order) for key in ("source", "target")]


def test_text_stays_and_segmentations_change(pairs, model, words):
    segmentations = set()
    for epoch in range(1, 30):
        for symbols, text in zip(drawn(with_dropout(pairs, model, words), epoch), np.repeat(TEXT[:3], 2)):
            assert symbols[-1] == words.eos()
            assert model.decode([words[number] for number in symbols[:-1]]) == text
            segmentations.add(tuple(symbols))
    assert len(segmentations) > 30


def test_seed_epoch_and_sentence_decide_alone(pairs, model, words):
    first = drawn(with_dropout(pairs, model, words), 2)
    assert drawn(with_dropout(pairs, model, words), 2, order=(2, 0, 1)) == first
    assert drawn(with_dropout(pairs, model, words), 3) != first
    assert drawn(with_dropout(pairs, model, words, seed=2), 2) != first


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_epochs_of_a_training_are_segmented_anew(pairs, model, words, workers):
    """Also by fairseq's workers, which without the guards keep the first epoch."""
    dataset = with_dropout(pairs, model, words)
    batches = EpochBatchIterator(
        dataset, dataset.collater, [[0], [1], [2]], num_workers=workers, reuse_dataloader=True
    )
    epochs = [[batch["net_input"]["src_tokens"] for batch in batches.next_epoch_itr(False)] for _ in range(4)]
    drawn = {tuple(torch.cat(epoch, 1).flatten().tolist()) for epoch in epochs}
    assert len(drawn) == 4


def test_share_of_merges_left_out(model, words):
    """A word of two pieces "a" and "b" that are merged at once is split in a share p of the draws."""
    pair = next(piece for piece in words.symbols if len(piece) == 2 and piece.isalpha())
    word = numbers(words, model.encode(pair, out_type=str))
    segmenter = Segmenter(model, words, 0.25, limit=1000)
    sentencepiece.set_random_generator_seed(1)
    whole = model.encode(pair, out_type=str)
    split = sum(len(segmenter(word)) > len(word) for _ in range(2000)) / 2000
    merges = len(pair) + 1 - len(whole)  # all of them must take place for the word to stay
    assert split == pytest.approx(1 - 0.75**merges, abs=0.04)


def test_what_cannot_be_restored_stays(model, words):
    segmenter = Segmenter(model, words, 0.9, limit=1000)
    unknown = torch.tensor([words.unk(), words.eos()])
    assert segmenter(unknown) is unknown
    other = numbers(words, ["▁", *"haus"])  # not what the model makes of it
    assert segmenter(other) is other
    usual = numbers(words, model.encode(TEXT[0], out_type=str))
    assert Segmenter(model, words, 0.9, limit=len(usual))(usual) is usual
    few = Dictionary()
    for piece in model.encode(TEXT[0], out_type=str):
        few.add_symbol(piece)
    usual = numbers(few, model.encode(TEXT[0], out_type=str))
    assert all(few.unk() not in Segmenter(model, few, 0.9, limit=1000)(usual) for _ in range(20))


def test_other_models_are_refused(tmp_path):
    with pytest.raises(UserError):
        open_bpe_model(learn(tmp_path, vocab_size=60, model_type="unigram"))
    with pytest.raises(UserError):
        open_bpe_model(tmp_path / "none.model")
    (tmp_path / "text.model").write_text("hello")
    with pytest.raises(UserError):
        open_bpe_model(tmp_path / "text.model")


def task(words, path, **settings):
    cfg = BPEDropoutConfig(data=str(path.parent / "bin"), train_subset="train", seed=1)
    for name, value in settings.items():
        setattr(cfg, name, value)
    return BPEDropoutTask(cfg, words, words)


def test_the_model_of_other_data_is_refused(words, path, pairs, tmp_path):
    assert isinstance(task(words, path)._with_dropout(pairs), BPEDropoutDataset)
    other = learn(tmp_path, vocab_size=30, model_type="bpe")
    with pytest.raises(UserError):
        task(words, path, bpe_dropout_model=str(other))._with_dropout(pairs)
