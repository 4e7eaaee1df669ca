"""Commands of which one write, fsync, rename or opening of a file fails, or that are killed there.

Whatever it was, what has its final name is whole, and the same command then ends as if nothing had happened.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from commands import ROOT, checked, forks, of, randomised, refused
from forks import NIGHTLY
from same_training import assert_same_training, same_flags
from tiny import contents

from user_dir.checkpoints import load_checkpoint

pytestmark = pytest.mark.slow
PROGRAM = ROOT / "tests" / "end_to_end" / "faults.py"
TRAINING = (
    "--max-update 2 --save-interval-updates 1 --disable-validation --encoder-layers 1 --decoder-layers 1"
)


@pytest.fixture(scope="module")
def checkpoint(small, once) -> Path:
    """A checkpoint of random weights, beside that of its training."""

    def fill(folder):
        checked(forks().run("-m", "fairseq_cli.train", *same_flags(small, folder, *TRAINING.split())), True)
        randomised(folder / "checkpoint_last.pt", folder / "random.pt", seed=1, scale=1 / 3)

    return once("faults", fill) / "random.pt"


def words_of(command: str, small: Path, checkpoint: Path, output: Path) -> list:
    """What a command is started with to write to ``output``."""
    script, model = ROOT / "scripts" / f"{command}.py", of(checkpoint, small)
    if command == "train":
        return ["-m", "fairseq_cli.train", *same_flags(small, output, *TRAINING.split())]
    if command == "prepare":
        return [script, "mine", "--raw", small.parents[1] / "raw", "--data", output, "--workers", "1"]
    if command == "average":
        both = checkpoint, checkpoint.with_name("checkpoint_last.pt")
        return [script, "--path", *both, "--output", output / "average.pt"]
    if command == "evaluate":
        return [script, *model, "--beam", "1", "--max-len-b", "5", "--output", output]
    if command == "translate":
        text = small.parents[1] / "raw" / "valid.de"
        return [script, *model, "--max-len-b", "5", "--input", text, "--output", output / "translations"]
    return [script, *model, "--output", output / "folder"]


def begin(command: str, small: Path, output: Path) -> None:
    """Make the folder to write to, with what must be there before."""
    if command == "prepare":
        (output / "mine").mkdir(parents=True)
        shutil.copy(small / "corpus.yaml", output / "mine")
    else:
        output.mkdir()


def whole(folder: Path) -> dict[str, bytes]:
    """The files of a folder without what a kill may leave: temporary files, and the α log of a run before."""
    left = re.compile(r"\.tmp$|\.part-|^tmp|\.jsonl\.1$")
    return {name: text for name, text in contents(folder).items() if not left.search(name)}


@pytest.mark.parametrize("command", ["prepare", "train", "average", "evaluate", "translate", "export"])
def test_every_operation_on_a_file_may_fail(command, small, checkpoint, tmp_path):
    through, log = tmp_path / "through", tmp_path / "log"

    def run(output: Path, how: str, number: int):
        words = words_of(command, small, checkpoint, output)
        return forks().run(PROGRAM, output, how, number, log, *words)

    begin(command, small, through)
    checked(run(through, "fail", 0), True)
    expected, count = contents(through), int(log.read_text())
    numbers = range(1, count + 1) if NIGHTLY in os.environ else (1 + count // 4, 1 + 3 * count // 4)
    for place, number in enumerate(numbers):
        for how in ("fail", "kill") if NIGHTLY in os.environ else (("fail", "kill")[place % 2],):
            output = tmp_path / f"{how}{number}"
            begin(command, small, output)
            done = run(output, how, number)
            if how == "kill":
                assert done.returncode < 0, (number, done.stderr)
            elif done.returncode == 0:  # a file that could not be renamed was copied
                assert command == "prepare" and whole(output) == expected, number
            else:
                refused(done, "No space left on device")
                assert whole(output) == contents(output), number
            files_are_whole(output, expected, checkpoints=command == "train")
            checked(run(output, "fail", 0), True)
            assert whole(output).keys() == expected.keys()
            if command == "train":
                assert_same_training(through, output)
            else:
                assert whole(output) == expected, number
            shutil.rmtree(output)
    print(f"{command}: {count} operations")


def files_are_whole(folder: Path, expected: dict[str, bytes], checkpoints: bool) -> None:
    """Checkpoints, which have times, can be read; other files are as they will be, translations a part."""
    for name, text in whole(folder).items():
        assert name in expected
        if name.endswith(".pt") and checkpoints:
            load_checkpoint(folder / name)
        elif name == "translations":  # written as they come
            assert expected[name].startswith(text)
        elif not name.endswith(".jsonl"):  # whose last line may be cut
            assert text == expected[name], name
