import subprocess
import sys

import pytest

from user_dir.io import Busy, locked


def test_the_second_run_is_told(tmp_path):
    with (
        locked(tmp_path / "new", "preparing"),
        pytest.raises(Busy, match="another run is preparing"),
        locked(tmp_path / "new", "preparing"),
    ):
        pass
    with locked(tmp_path / "new", "preparing"):
        pass


def test_the_lock_lasts_as_long_as_a_child_that_has_it(tmp_path):
    wait = [sys.executable, "-S", "-c", "input()"]
    with locked(tmp_path, "training in") as descriptors:
        child = subprocess.Popen(wait, stdin=subprocess.PIPE, pass_fds=descriptors)
    with pytest.raises(Busy, match="training in"), locked(tmp_path, "training in"):
        pass
    child.communicate(b"\n")
    with locked(tmp_path, "training in"):
        pass
