import pytest
import torch

from user_dir.benchmarks.measure import interleaved, peak_memory, quartiles, ratio

CPU = torch.device("cpu")


def test_each_round_runs_each_job_once_in_random_order():
    ran = []

    def job(name):
        def run(number):
            ran.append((number, name))
            return float(number)

        return run

    jobs = {name: job(name) for name in "abc"}
    results = interleaved(jobs, 20, seed=1, what="test")
    assert results == {name: [float(i) for i in range(20)] for name in "abc"}
    rounds = [ran[i : i + 3] for i in range(0, 60, 3)]
    assert all(sorted(each) == [(number, name) for name in "abc"] for number, each in enumerate(rounds))
    assert len({tuple(name for _, name in each) for each in rounds}) == 6, "not every order came up"
    again = list(ran)
    ran.clear()
    interleaved(jobs, 20, seed=1, what="test")
    assert ran == again, "the seed decides on the order"


def test_peak_memory_is_the_largest_amount_allocated_at_once():
    kept = []

    def work():
        a = torch.zeros(1000, 1000)  # 4 MB
        b = a + 1  # 4 MB more
        del a
        kept.append(b.sum())
        del b
        torch.zeros(250, 1000)  # at most 1 MB at this point

    assert peak_memory(work, CPU) == pytest.approx(8e6, rel=0.01)
    assert peak_memory(lambda: None, CPU) == 0


def test_statistics_over_rounds():
    assert quartiles([4.0, 1.0, 2.0, 3.0, 5.0]) == {"median": 3.0, "q1": 2.0, "q3": 4.0}
    # The machine was slow in the second round, for both jobs.
    assert ratio([2.0, 20.0, 3.0], [1.0, 10.0, 1.0]) == 2.0
