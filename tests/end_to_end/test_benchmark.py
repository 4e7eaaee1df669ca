import functools
import json

import pytest
import torch
from commands import refused, script

from user_dir.benchmarks.end_to_end import build, mean_length, time_training, translation_batches
from user_dir.benchmarks.peer_systems import ALPHA_ENTMAX, STOCK, SYSTEMS, Workshop, is_own
from user_dir.corpora import load_corpus
from user_dir.errors import UserError

HEAD = {"benchmark", "date", "command", "commit", "seed", "machine", "versions"}
CPU = torch.device("cpu")


def test_kernels_as_table_and_json(tmp_path):
    output = tmp_path / "new" / "kernels.json"
    flags = ["--shapes", "2x4x3x8", "--rounds", "2", "--threads", "1", "--cpu", "--output", output]
    done = script("benchmark", "kernels", *flags, anew="nightly")
    assert done.stdout.count("scores 2 × 4 × 3 × 8 from N(0, ") == 2
    assert "largest error of the gradient of α" in done.stdout
    # torch's builds for CUDA say so at every import where there is a compiler and no GPU
    assert not [line for line in done.stderr.splitlines() if "No CUDA runtime is found" not in line]

    report = json.loads(output.read_text(encoding="utf-8"))
    assert set(report) == {*HEAD, "rounds", "left_out", "timings", "accuracy"}
    assert report["machine"]["threads"] == 1
    assert report["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert {"--rounds", "2"} < set(report["command"].split())
    names = {row["implementation"] for row in report["timings"]}
    assert {"torch softmax", "entmax_bisect, 25 steps", "entmax_bisect, 50 steps"} < names
    assert {"entmax15", "sparsemax", "ours, reference"} < names
    assert "ours, native" in names | set(report["left_out"])
    for row in report["timings"]:
        assert row["shape"] == [2, 4, 3, 8]
        assert set(row["seconds"]) == {"median", "q1", "q3"}
    by_alpha = {row["alpha"] for row in report["timings"] if row["implementation"] == "ours, reference"}
    assert by_alpha == {"per head", 1.5, 2.0}
    at_one = [row for row in report["accuracy"] if row["alpha"] == 1 and row["alpha_given"] == "per head"]
    assert {row["implementation"]: row["alpha_gradient"] for row in at_one}["entmax_bisect, 50 steps"] is None


def benchmark(*flags):
    return script("benchmark", *flags, check=False)


def test_invalid_arguments_end_with_an_error_message():
    refused(benchmark("kernels", "--shapes", "8x8x512"), "8x8x512", "BxHxTxS")
    refused(benchmark("kernels", "--rounds", "0"), "--rounds", "0")
    refused(benchmark(), "KIND")


@pytest.mark.slow
def test_impossible_requests_end_with_an_error_message_before_any_measurement(data, tmp_path):
    refused(benchmark("kernels", "--output", tmp_path / "table.txt"), "table.txt", ".json")
    (tmp_path / "file").write_text("")
    refused(benchmark("kernels", "--output", tmp_path / "file" / "a.json"), "file")
    to = ["--output", tmp_path / "a.json", "--cpu"]
    refused(benchmark("end-to-end", "--data", tmp_path, *to), "multi30k", "scripts/prepare.py")
    toy = ["--corpus", "toy", "--data", data, *to]
    refused(benchmark("profile", *toy, "--path", "c.pt", "--size", "tiny", "iwslt"), "--size", "2")
    refused(benchmark("profile", *toy, "--precision", "bf16"), "bf16", "GPU")
    kernels = functools.partial(benchmark, "kernels", *to)
    refused(kernels("--shapes", "2x4x3x8", "100000x1000x1000x1000"), "100000x1000x1000x1000", "GiB")
    refused(kernels("--shapes", "2x4x3x" + "9" * 5000), "BxHxTxS")
    for flag, number in {"--threads": 2**40, "--seed": 2**64, "--rounds": 10**12}.items():
        refused(kernels(flag, str(number)), flag, str(number), "is not a whole number from")
    refused(benchmark("profile", *toy, "--updates", "1" * 400), "--updates")
    assert not (tmp_path / "a.json").exists()


@pytest.fixture(scope="module")
def runners(data, tmp_path_factory):
    scratch = tmp_path_factory.mktemp("scratch")
    workshop = Workshop(load_corpus("toy", data), "tiny", "fp32", 200, 1, CPU, scratch)
    return build(workshop)


@pytest.mark.slow
def test_all_systems_start_from_the_same_parameters(runners):
    stock, *ours = [runner.trainer.model.state_dict() for runner in runners]
    assert sum(value.numel() for value in stock.values()) > 1_000_000
    for state in ours:
        extra = {name for name in state if name not in stock}
        assert all(is_own(name) for name in extra)
        assert all(torch.equal(state[name], value) for name, value in stock.items())
    learned, bisected = ours[-2:]
    assert sum(name.endswith(".alpha.a") for name in learned) == 12
    assert all(torch.equal(learned[name], bisected[name]) for name in learned)


@pytest.mark.slow
def test_training_makes_the_same_updates_in_all_systems(runners):
    rows = time_training(runners, updates=1, rounds=2, seed=1)
    assert [row["system"] for row in rows] == [system.name for system in SYSTEMS]
    assert all(row["tokens_per_second"]["median"] > 0 and row["peak_bytes"] > 1e6 for row in rows)
    # One for warm-up, one per round, and one to measure memory.
    assert {runner.trainer.get_num_updates() for runner in runners} == {4}
    models = [runner.trainer.model.state_dict() for runner in runners]
    # The last two compute the same by other means, with the same dropout.
    for name, value in models[-2].items():
        torch.testing.assert_close(models[-1][name], value, rtol=1e-3, atol=2e-4)
    name = "encoder.layers.0.fc1.weight"
    assert not torch.equal(models[0][name], models[-2][name])


@pytest.mark.slow
def test_translations_are_as_long_as_references(runners):
    task = runners[0].trainer.task
    batches = translation_batches(task, "test", 7)
    assert sum(len(batch["id"]) for batch in batches) == 7
    assert len({int(i) for batch in batches for i in batch["id"]}) == 7
    references = batches[0]["target"].ne(task.target_dictionary.pad()).sum(1) - 1
    assert mean_length(batches[0], task.target_dictionary.pad()) == round(float(references.float().mean()))
    for runner in runners:
        runner.translate(batches, beam=2)  # checks all lengths
        if runner.system == ALPHA_ENTMAX:
            runner.translate(batches, beam=2, int8=True)


@pytest.mark.nightly  # the tests above have all systems
@pytest.mark.slow
def test_end_to_end_and_profile_as_table_and_json(data, tmp_path):
    common = ["--quick", "--corpus", "toy", "--data", data, "--max-tokens", "200", "--cpu"]
    output = tmp_path / "a.json"
    done = script("benchmark", "end-to-end", *common, "--sentences", "3", "--output", output)
    assert "| stock transformer" in done.stdout and "| α-entmax by entmax_bisect" in done.stdout
    report = json.loads(output.read_text(encoding="utf-8"))
    fields = {
        "rounds",
        "max_tokens",
        "corpus",
        "test_set",
        "checkpoint",
        "backend",
        "training",
        "translation",
        "one_sentence",
    }
    assert set(report) == {*HEAD, *fields}
    for table, unit in (("training", "tokens_per_second"), ("translation", "sentences_per_second")):
        assert report[table][0]["to_stock"] == 1
        assert all(set(row[unit]) == {"median", "q1", "q3"} for row in report[table])
    systems = [system.name for system in SYSTEMS]
    assert [row["system"] for row in report["training"]] == systems
    others = ["ours, α-entmax, int8", "CTranslate2, softmax, float32", "CTranslate2, softmax, int8"]
    assert [row["system"] for row in report["translation"]] == 2 * [*systems, *others]
    assert {row["beam"] for row in report["translation"]} == {1, 5}
    alone = ["ours, α-entmax", *others]
    assert [row["system"] for row in report["one_sentence"]] == 2 * alone
    assert all(row["floor"] > 0 for row in report["one_sentence"] if row["system"].startswith("ours"))
    assert all(row["milliseconds"]["q1"] > 0 for row in report["one_sentence"])

    done = script("benchmark", "profile", *common, "--output", output)
    assert "| aten::addmm" in done.stdout
    report = json.loads(output.read_text(encoding="utf-8"))
    stock, ours = ({each["operation"] for each in run["operations"]} for run in report["translation"])
    assert "search" in ours and "search" not in stock
    (found,) = report["profiles"]
    assert len(found["operations"]) == 15
    for name in ("forward", "backward"):
        whole = found["phases"][name]
        ours = [value for phase, value in found["phases"].items() if phase.endswith(f", {name}")]
        assert ours and min(ours) > 0 and sum(ours) < whole < found["seconds"]


@pytest.mark.nightly
def test_processes_as_table_and_json(tmp_path):
    output = tmp_path / "a.json"
    done = script("benchmark", "process", "--quick", "--cpu", "--threads", "1", "--output", output)
    assert "1 sentences, tiny, beam 5" in done.stdout and "| ours, by fairseq" in done.stdout
    rows = json.loads(output.read_text(encoding="utf-8"))["rows"]
    assert {row["sentences"] for row in rows} == {1, 5} and len(rows) == 12
    peaks = {row["system"]: row["peak_bytes"] for row in rows}
    assert peaks["import of torch alone"] < peaks["ours"] < peaks["ours, by fairseq"]


@pytest.mark.nightly  # builds three models of real sizes
@pytest.mark.slow
def test_parameters_of_a_checkpoint(data, trained, stock, tmp_path):
    def workshop(checkpoint):
        return Workshop(load_corpus("toy", data), "tiny", "fp32", 200, 1, CPU, tmp_path, checkpoint)

    # The models of these fixtures do not have the size tiny.
    for checkpoint in (trained / "checkpoint_last.pt", stock):
        with pytest.raises(UserError, match=f"{checkpoint.name} does not fit the size tiny.* --size"):
            workshop(checkpoint).trainer(STOCK)

    trainer = workshop(None).trainer(ALPHA_ENTMAX)
    for value in trainer.model.state_dict().values():
        value += 1
    own = tmp_path / "own.pt"
    trainer.cfg.checkpoint.no_save_optimizer_state = True
    trainer.save_checkpoint(str(own), {})
    for system, names in ((STOCK, 0), (ALPHA_ENTMAX, 12)):
        state = workshop(own).trainer(system).model.state_dict()
        assert sum(name.endswith(".alpha.a") for name in state) == names
        assert all(torch.equal(trainer.model.state_dict()[name], value) for name, value in state.items())
