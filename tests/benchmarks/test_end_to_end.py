import math
from types import SimpleNamespace

from user_dir.benchmarks.end_to_end import Runner, _rows
from user_dir.benchmarks.systems import STOCK, System
from user_dir.benchmarks.tables import speed_table


def test_a_system_whose_gradients_overflow_is_named_and_left_out():
    def overflow(batches):
        raise FloatingPointError("gradients are Nan/Inf")

    runners = [
        Runner(STOCK, SimpleNamespace(cuda=False, train_step=lambda batches: None)),
        Runner(System("other"), SimpleNamespace(cuda=False, train_step=overflow)),
    ]
    stock, other = ([runner.seconds(runner.updates, [{}]) for _ in range(2)] for runner in runners)
    assert all(value > 0 for value in stock)
    assert all(math.isnan(value) for value in other)
    rows = _rows(runners, {STOCK: stock, runners[1].system: other}, [10, 20], "tokens_per_second")
    assert rows[0]["tokens_per_second"]["median"] > 0
    assert rows[1] == {"system": "other", "failure": "gradients are Nan/Inf"}
    assert "gradients are Nan/Inf" in speed_table(rows, "tokens_per_second")
