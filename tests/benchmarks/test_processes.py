"""Programs are timed in processes of their own, whose memory is theirs alone."""

import numpy as np
import pytest

from user_dir.benchmarks.processes import END, processes_table, time_processes


def test_time_and_memory_are_those_of_the_program():
    held = np.ones(200 << 17)  # 200 MiB in this process, from which the programs are forked
    named = {"small": "pass" + END, "large": "x = bytearray(b'1' * (100 << 20))" + END}
    named["busy"] = "sum(range(20_000_000))" + END
    rows = {row["system"]: row for row in time_processes(named, 1, 1, 1)}
    assert held.nbytes == 200 << 20
    assert rows["small"]["peak_bytes"] < 60 << 20 < 100 << 20 < rows["large"]["peak_bytes"] < 300 << 20
    assert rows["busy"]["cpu_seconds"]["median"] > 2 * rows["small"]["cpu_seconds"]["median"]
    table = processes_table(list(rows.values()))
    assert "peak memory, MiB" in table and "| busy" in table


def test_a_program_that_fails_is_reported():
    with pytest.raises(RuntimeError, match="no-such-module"):
        time_processes({"broken": "raise ImportError('no-such-module')"}, 1, 1, 1)
