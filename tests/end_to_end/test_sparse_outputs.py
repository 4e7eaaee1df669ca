"""Training with the α-entmax loss; every kind of search with exact zeros among the probabilities."""

import re

import pytest
import torch
from commands import PLUGIN, here, train
from fairseq import checkpoint_utils
from fairseq.sequence_generator import SequenceGenerator

from user_dir.checkpoints import load_checkpoint, save_checkpoint

pytestmark = pytest.mark.slow

SPARSE = ["--criterion", "entmax_loss", "--output-alpha", "1.5"]


@pytest.fixture(scope="module")
def trained_sparse(corpus, once):
    """A folder of checkpoints and the log of 12 updates with the α-entmax loss."""

    def fill(folder):
        done = train(corpus, folder, *SPARSE, "--max-update", "12", "--max-valid-steps", "1")
        (folder / "log").write_text(done.stdout + done.stderr)

    return once("trained_sparse", fill)


@pytest.fixture(scope="module")
def peaked(trained_sparse, tmp_path_factory):
    """The checkpoint with its scores scaled up, so that the support is small; and another one."""
    folder = tmp_path_factory.mktemp("peaked")
    for name, factor in (("first", 6), ("second", 4)):
        state = load_checkpoint(trained_sparse / "checkpoint_last.pt")
        for parameter in ("decoder.layer_norm.weight", "decoder.layer_norm.bias"):
            state["model"][parameter] *= factor
        save_checkpoint(state, folder / f"{name}.pt")
    return folder


def test_the_log_has_the_support_instead_of_a_perplexity(trained_sparse):
    log = (trained_sparse / "log").read_text()
    (last,) = re.findall(r"valid on 'valid' subset.*", log)[-1:]
    assert float(re.search(r"\| support ([\d.]+)", last)[1]) >= 1
    assert 0 <= float(re.search(r"\| output_zeros ([\d.]+)", last)[1]) < 1
    losses = [float(value) for value in re.findall(r"train_inner .*?loss=([\d.]+)", log)]
    losses = losses or [float(value) for value in re.findall(r"\| loss ([\d.]+)", log)]
    assert len(losses) > 1 and losses[-1] < losses[0] and "ppl" not in last


def generate(corpus, path, *flags):
    few = (
        "--cpu --gen-subset valid --max-sentences 40 --num-shards 16 --shard-id 0 --max-len-a 0 --max-len-b 6"
    )
    return here("generate", corpus / "bin", *PLUGIN, "--path", path, *few.split(), *flags)


def scores(output, letter="H"):
    return [float(score) for score in re.findall(rf"^{letter}-\d+\t(\S+)\t", output, re.M)]


@pytest.mark.parametrize(
    "flags",
    [
        ["--beam", "5", "--nbest", "5"],
        pytest.param(["--sampling", "--beam", "2", "--nbest", "2"], marks=pytest.mark.nightly),
    ],
)
def test_generate_translates_every_sentence(corpus, peaked, flags):
    output = generate(corpus, peaked / "first.pt", *flags)
    sentences = {int(number) for number in re.findall(r"^H-(\d+)\t", output, re.M)}
    sources = {int(number) for number in re.findall(r"^S-(\d+)\t", output, re.M)}
    assert sentences == sources and len(sources) > 20
    hypothesis_scores = scores(output)
    assert all(score <= 0 for score in hypothesis_scores)
    if "--nbest" in flags:
        assert len(hypothesis_scores) < 5 * len(sources)  # fewer hypotheses than the beam have a probability


@pytest.mark.nightly
def test_an_ensemble_and_the_scores_of_references(corpus, peaked):
    both = f"{peaked / 'first.pt'}:{peaked / 'second.pt'}"
    assert max(scores(generate(corpus, both, "--beam", "3"))) > -10
    reference_scores = scores(generate(corpus, peaked / "first.pt", "--score-reference"))
    assert min(reference_scores) == -float("inf")  # some references have a probability of 0


def test_scores_are_those_of_the_whole_translation(corpus, peaked):
    """Also shows that the scores of beam search, step by step, are logarithms of α-entmax."""
    overrides = {"data": str(corpus / "bin")}
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(peaked / "second.pt")], overrides)
    model = models[0].eval()
    assert model.decoder.output_normalizer.alpha() == 1.5
    task.load_dataset("valid")
    dataset = task.dataset("valid")
    batch = dataset.collater([dataset[i] for i in range(6)])
    search = SequenceGenerator([model], task.target_dictionary, beam_size=3, max_len_b=6)
    beams = search.generate([model], batch)
    assert all(hypothesis["positional_scores"].sum() <= 0 for beam in beams for hypothesis in beam)
    with torch.no_grad():
        for row, hypotheses in enumerate(beams):
            tokens = hypotheses[0]["tokens"]
            previous = torch.cat([tokens.new_tensor([task.target_dictionary.eos()]), tokens[:-1]])
            source = batch["net_input"]["src_tokens"][row : row + 1]
            output = model(source, batch["net_input"]["src_lengths"][row : row + 1], previous[None])
            p = model.get_normalized_probs(output, log_probs=False)[0]
            chosen = p.gather(1, tokens[:, None]).squeeze(1)
            torch.testing.assert_close(hypotheses[0]["positional_scores"], chosen.log(), rtol=1e-4, atol=1e-4)
            assert ((p > 0).sum(-1) < p.size(1)).any()
