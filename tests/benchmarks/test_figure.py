import pytest

from user_dir.benchmarks.against_sdpa import OURS, OURS_15, SDPA
from user_dir.benchmarks.figure import time_by_length


def test_lines_are_geometric_means_over_masks():
    times = {SDPA: (2.0, 8.0), OURS: (1.0, 2.0), OURS_15: (1.0, 1.0)}
    rows = [
        {
            "length": length,
            "mask": mask,
            "implementation": name,
            "seconds": {measure: {"median": seconds * length} for measure in ("forward", "training")},
        }
        for length in (32, 128)
        for name, each in times.items()
        for mask, seconds in zip(("full", "causal"), each)
    ]
    for axes in time_by_length(rows).axes:
        _, ours, fixed = axes.lines
        assert ours.get_xdata().tolist() == fixed.get_xdata().tolist() == [32, 128]
        assert ours.get_ydata() == pytest.approx([(1 / 8) ** 0.5] * 2)
        assert fixed.get_ydata() == pytest.approx([0.25] * 2)
