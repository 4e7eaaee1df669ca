"""One of several processes that train a run together, started by torchrun with a config and its overrides.

The training command depends on the worker's rank, which only the worker itself knows.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ..command_line import run_command
from ..config import training_command


def main() -> None:
    """Become the training."""
    config, *overrides = sys.argv[1:]
    command, environment = training_command(Path(config), overrides, Path.cwd())
    os.execve(command[0], command, environment)


if __name__ == "__main__":
    run_command(main)
