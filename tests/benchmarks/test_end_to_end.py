import math
from types import SimpleNamespace

import pytest
import torch

from user_dir.benchmarks.end_to_end import Runner, failures
from user_dir.benchmarks.peer_systems import STOCK, Variant
from user_dir.benchmarks.speed import speed_rows, speed_table
from user_dir.errors import UserError


@pytest.mark.parametrize("error", [FloatingPointError, UserError])
def test_a_system_that_fails_is_reported_and_omitted(error):
    def overflow(batches):
        raise error("gradients are Nan/Inf")

    device = torch.device("cpu")
    runners = [
        Runner(STOCK, SimpleNamespace(device=device, train_step=lambda batches: None)),
        Runner(Variant("other"), SimpleNamespace(device=device, train_step=overflow)),
    ]
    stock, other = ([runner.seconds([{}]) for _ in range(2)] for runner in runners)
    assert all(value > 0 for value in stock)
    assert all(math.isnan(value) for value in other)
    times = {STOCK.name: stock, "other": other}
    rows = speed_rows(times, [10, 20], "tokens_per_second", STOCK.name, failures(runners))
    assert rows[0]["tokens_per_second"]["median"] > 0
    assert rows[1] == {"system": "other", "failure": "gradients are Nan/Inf"}
    assert "gradients are Nan/Inf" in speed_table(rows, "tokens_per_second")
