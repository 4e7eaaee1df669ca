import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from user_dir.corpora.worker_pool import batches, map_batches
from user_dir.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch):
    monkeypatch.setattr(batches, "__defaults__", (3,))


def tagged(numbers):
    time.sleep(0.01 * (numbers[0] % 2))  # makes batches finish out of order
    return os.getpid(), numbers


def inverse(numbers):
    return [1 / number for number in numbers]


def killed(numbers):
    os.kill(os.getpid(), signal.SIGKILL)


def test_batches():
    assert list(batches(range(7), 3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(batches([], 3)) == []


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("number", [0, 1, 3, 4, 50])
def test_the_order_is_kept(workers, number):
    found = list(map_batches(tagged, range(number), workers))
    assert [each for _, batch in found for each in batch] == list(range(number))
    here = {process == os.getpid() for process, _ in found}
    assert here <= {workers == 1 or number <= 3}


def test_few_batches_wait_in_memory():
    """The number of batches read ahead does not grow with the text."""
    taken = 0

    def numbers():
        nonlocal taken
        for i in range(300):
            taken += 1
            yield i

    results = map_batches(tagged, numbers(), 2)
    for done, _ in enumerate(results, start=1):
        assert taken <= 3 * (done + 4)


def test_an_error_in_parent_or_worker_is_raised():
    def numbers():
        yield from range(20)
        raise UserError("torn")

    with pytest.raises(UserError, match="torn"):
        list(map_batches(tagged, numbers(), 2))
    with pytest.raises(ZeroDivisionError):
        list(map_batches(inverse, range(20), 2))


def test_a_killed_worker_is_one_error_message():
    with pytest.raises(UserError, match=r"worker process was killed, .* use fewer --workers"):
        list(map_batches(killed, range(20), 2))


ORPHANS = """
import os, time
from user_dir.corpora.worker_pool import batches, map_batches
batches.__defaults__ = (1,)

def slow(numbers):
    os.write(1, b"%d\\n" % os.getpid())  # at one go: the two share a pipe
    time.sleep(0.1)

for _ in map_batches(slow, range(10**6), 2):
    pass
"""


@pytest.mark.slow
def test_workers_end_with_a_killed_parent():
    parent = subprocess.Popen([sys.executable, "-c", ORPHANS], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    workers = set()
    while len(workers) < 2:
        line = parent.stdout.readline()
        assert line, "it ended before both workers began"
        workers.add(int(line))
    parent.kill()
    parent.wait()

    def alive(process):
        try:
            return Path(f"/proc/{process}/stat").read_text().split(")")[1].split()[0] != "Z"
        except OSError:
            return False

    deadline = time.monotonic() + 120
    while any(map(alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not any(map(alive, workers))
