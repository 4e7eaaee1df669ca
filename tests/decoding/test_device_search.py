"""Our search for a GPU, on the CPU: what it remembers, replays and reads.

Graphs are replaced by records of operators (``no_gpu.Recorded``), which repeat what the host did, as graphs
do. ``test_generator.py`` has the models and options.
"""

import gc
import weakref

import pytest
import torch
from fairseq import models
from fairseq.sequence_generator import SequenceGenerator
from helpers import dictionary, parse, peaked, translation_task
from no_gpu import NoHost, Recorded, take_triton_kernels

from user_dir.decoding import device_search as search
from user_dir.decoding.device_state import Arena
from user_dir.decoding.generator import FastGenerator
from user_dir.graphs.recorder import Recorder

PRE_NORM = "--encoder-normalize-before --decoder-normalize-before"
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
LONG = {"beam_size": 3, "max_len_a": 0, "max_len_b": 34, "len_penalty": 1.5}
SHORT = {"beam_size": 3, "max_len_a": 0, "max_len_b": 8}


class OnDevice(FastGenerator):
    on_device = True

    @property
    def graphs(self):
        return self._kept[1]._replays


def model(flags=PRE_NORM, seed=1, dtype=torch.float64):
    """A model whose hypotheses end at all lengths."""
    return peaked(flags, seed=seed).to(dtype)


def sources(count=3, longest=9, seed=1):
    """Sentences of different lengths, padded on the left."""
    generator, words = torch.Generator().manual_seed(seed), dictionary()
    rows = torch.full((count, longest), words.pad())
    lengths = torch.randint(2, longest + 1, (count,), generator=generator)
    lengths[0] = longest
    for row, length in zip(rows, lengths.tolist()):
        row[-length:] = torch.randint(words.nspecial, len(words), (length,), generator=generator)
        row[-1] = words.eos()
    return {"net_input": {"src_tokens": rows, "src_lengths": lengths}}


def tokens_of(hypotheses):
    return [hypothesis["tokens"].tolist() for hypothesis in hypotheses]


def assert_same(ours, theirs, tolerance=1e-5):
    assert len(ours) == len(theirs)
    for mine, expected in zip(ours, theirs):
        assert tokens_of(mine) == tokens_of(expected)
        for actual, other in zip(mine, expected):
            for name in ("score", "positional_scores"):
                torch.testing.assert_close(
                    actual[name].double(), other[name].double().cpu(), rtol=tolerance, atol=tolerance
                )


def fairseqs(built, sample, options):
    return SequenceGenerator([built], dictionary(), **options).generate([built], sample)


@pytest.fixture
def recorded(monkeypatch):
    """Steps are replayed as on a GPU."""
    made = []

    def record(self, run):
        with Recorded() as replay:
            run()
        made.append(replay)
        return replay

    monkeypatch.setattr(Recorder, "record", record)
    return made


SPARSE = "--output-alpha 1.5 --length-scaling --encoder-learned-pos"


@pytest.mark.parametrize(("flags", "sooner"), ((PRE_NORM, True), (SPARSE, False)))
def test_replayed_steps_give_the_same_batch_after_batch(flags, sooner, recorded, caplog, monkeypatch):
    """Also where batches grow, translations outgrow their room, and finished sentences are left out."""
    if sooner:
        for module, name in ((search, "EVERY"), (search, "LEAST_SENTENCES"), (search, "LEAST_POSITIONS")):
            monkeypatch.setattr(module, name, 1)
        monkeypatch.setattr(search, "SMALLER", 1.2)
    built, moved, options = model(flags), [], {**LONG, "max_len_b": 12 if sooner else 34}
    generator = OnDevice([built], dictionary(), **options)
    move = search.State.moved_to
    monkeypatch.setattr(search.State, "moved_to", lambda *args: moved.append(args) or move(*args))
    for count, length in ((3, 4), (14, 9), (5, 20), (14, 9)):
        sample = sources(count, length)
        assert_same(generator.generate([built], sample), fairseqs(built, sample, options))
    assert generator.graphs and len(recorded) > 2 and bool(moved) == sooner
    assert "graph" not in caplog.text


def test_a_record_repeats_the_numbers_of_the_host():
    """The test above could fail."""
    place, number = torch.zeros(2), 3
    with Recorded() as replay:
        place.add_(number).mul_(2)
        other = place + number
    number = 5
    assert place.tolist() == [0, 0]
    replay()
    replay()
    assert place.tolist() == [18, 18] and other.tolist() == [21, 21]


@pytest.mark.parametrize("error", (torch.cuda.OutOfMemoryError, RuntimeError))
def test_what_cannot_be_recorded_is_translated_by_fairseqs_search(error, caplog, monkeypatch):
    def record(self, run):
        run()  # half a step may have run
        raise error("because")

    built, sample = model(), sources()
    generator = OnDevice([built], dictionary(), **SHORT)
    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "record", record)
        for _ in range(2):
            assert_same(generator.generate([built], sample), fairseqs(built, sample, SHORT))
    assert generator._kept is None and sum("because" in message for message in caplog.messages) == 1
    assert_same(generator.generate([built], sample), fairseqs(built, sample, SHORT))
    assert generator._kept is not None


def test_a_batch_without_enough_memory_is_translated_by_fairseqs_search(caplog, monkeypatch):
    def step(*_):
        raise torch.cuda.OutOfMemoryError("because")

    monkeypatch.setattr(search.DeviceSearch, "_step", step)
    built, sample = model(), sources()
    generator = OnDevice([built], dictionary(), **SHORT)
    assert_same(generator.generate([built], sample), fairseqs(built, sample, SHORT))
    assert generator._kept is None and "because" in caplog.text


def test_memory_made_in_inference_mode_is_used_outside_and_goes_with_the_generator():
    built, sample = model(), sources()
    generator = OnDevice([built], dictionary(), **SHORT)
    with torch.inference_mode():
        first = generator.generate([built], sample)
    assert_same(first, generator.generate([built], sample))
    kept = weakref.ref(generator)
    gc.disable()
    try:
        del generator
        assert kept() is None
    finally:
        gc.enable()


def test_changed_parameters_are_seen_by_replayed_steps(recorded):
    built, sample = model(), sources()
    generator = OnDevice([built], dictionary(), **SHORT)
    generator.generate([built], sample)
    kept, captured = generator._kept[1], generator.graphs.copy()
    for name, parameter in built.named_parameters():
        if "k_proj" in name or "alpha" in name or "embed" in name or "fc1" in name:
            parameter.data.mul_(-0.5)
    assert_same(generator.generate([built], sample), fairseqs(built, sample, SHORT))
    assert generator._kept[1] is kept and generator.graphs.items() >= captured.items()
    generator.beam_size = 2
    generator.unk_penalty, generator.min_len = 3.0, 4  # beam apart, these are read in each call
    options = {**SHORT, "beam_size": 2, "unk_penalty": 3.0, "min_len": 4}
    assert_same(generator.generate([built], sample), fairseqs(built, sample, options))


@pytest.mark.parametrize("flags", (PRE_NORM, "--output-alpha 1.5 --length-scaling"))
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_lower_precision(dtype, flags, recorded):
    exact, sample = model(flags), sources(9)
    options = {"beam_size": 4, "max_len_b": 12}
    built = model(flags, dtype=dtype)
    ours = OnDevice([built], dictionary(), **options).generate([built], sample)
    theirs = fairseqs(exact, sample, options)
    if dtype == torch.float32:
        assert_same(ours, theirs, 1e-4)
    for mine, expected in zip(ours, theirs):
        assert mine[0]["score"].dtype == torch.float32
        scores = mine[0]["score"].double(), expected[0]["score"].double()
        torch.testing.assert_close(*scores, rtol=0.2, atol=0.2)


# ------------------------------------------------------------------------------------ nothing is read


@pytest.mark.parametrize(
    "flags",
    (
        PRE_NORM,
        "--output-alpha 1.5 --attention-backend dense",
        "--attention-normalizer softmax --length-scaling",
        "--fixed-alpha 1.5 --decoder-learned-pos --layernorm-embedding",
        "--attention-normalizer rela",
        "--no-cross-attention",
    ),
)
def test_a_step_reads_nothing_from_the_device(flags, monkeypatch):
    take_triton_kernels(monkeypatch)
    monkeypatch.setattr("user_dir.attention.triton.passes_check", lambda *args, **options: True)
    arch = "adaptively_sparse_transformer"
    small = "--encoder-layers 1 --decoder-layers 2 --encoder-embed-dim 16 --decoder-embed-dim 16"
    built = models.build_model(parse(f"{small} {flags}", arch), translation_task())
    built, source = built.eval().float().to("meta"), sources()["net_input"]["src_tokens"]
    generator = OnDevice([built], dictionary(), beam_size=3, temperature=0.5)
    sample = {"net_input": {"src_tokens": source.to("meta"), "src_lengths": torch.tensor([1]).to("meta")}}
    assert generator.can_search(sample)
    once = generator._device_search()
    with torch.no_grad(), NoHost():
        state = once._begin(sample["net_input"], longest=9, begin=2)
        once._step(state)


# ----------------------------------------------------------------------------------------- its parts


def test_memory_that_grows_keeps_its_contents():
    arena = Arena(torch.device("cpu"))
    first = arena.view("a", torch.int64, 2, 3)
    first.copy_(torch.arange(6).view(2, 3))
    assert arena.view("a", torch.int64, 3).data_ptr() == first.data_ptr() and arena.moves == 1
    assert arena.view("a", torch.int64, 3, 3).flatten().tolist() == [0, 1, 2, 3, 4, 5, 0, 0, 0]
    assert arena.moves == 2


# ----------------------------------------------------------------------------------------- with a GPU


@GPU
@pytest.mark.parametrize("flags", (PRE_NORM, "--output-alpha 1.5 --length-scaling"))
def test_captured_steps_give_the_same_as_fairseq_on_the_cpu(flags, caplog):
    built, on_gpu = model(flags, dtype=torch.float32), model(flags, dtype=torch.float32).cuda()
    generator = FastGenerator([on_gpu], dictionary(), **LONG)
    for count, length in ((3, 4), (14, 9), (5, 20), (14, 9)):
        sample = sources(count, length)
        placed = {"net_input": {name: tensor.cuda() for name, tensor in sample["net_input"].items()}}
        assert generator.can_search(placed)
        translations = generator.generate([on_gpu], placed)
        for ours, theirs in zip(translations, fairseqs(built, sample, LONG)):
            assert ours[0]["tokens"].tolist() == theirs[0]["tokens"].tolist()
            torch.testing.assert_close(ours[0]["score"], theirs[0]["score"], rtol=1e-3, atol=1e-3)
    assert len(generator._kept[1]._replays) > 1
    assert "graph" not in caplog.text
