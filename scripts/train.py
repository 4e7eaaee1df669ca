#!/usr/bin/env python3
"""Train a model: fairseq-hydra-train with this plugin loaded and the config checked first.

Paths in a config are relative to the root of this repository, wherever the command is given. Any setting can
be changed behind the config, named there or not; hydra's +key=value and ~key are taken as they are:

    python scripts/train.py configs/toy/alpha_entmax.yaml optimization.max_update=500 model.encoder_layers=2

Training killed half-way goes on from its last checkpoint when the same command is given again.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from user_dir.command_line import file_path, run_command

ROOT = Path(__file__).resolve().parents[1]


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", type=file_path, help="YAML file, configs/CORPUS/VARIANT.yaml")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings to change")
    parser.add_argument("--tensorboard", metavar="DIR", help="write TensorBoard logs there")
    return parser.parse_intermixed_args(argv)  # flags may stand between settings


def main(argv=None) -> None:
    """Check the config, then become fairseq-hydra-train."""
    args = parse_args(argv)

    from user_dir.config import training_command

    overrides = list(args.overrides)
    if args.tensorboard:
        overrides.append(f"++common.tensorboard_logdir='{Path(args.tensorboard).resolve()}'")
    command, environment = training_command(args.config, overrides, ROOT)
    if sys.stdout is not None:  # fairseq's log names α, too, which not every terminal can show
        environment["PYTHONIOENCODING"] = f"{sys.stdout.encoding}:backslashreplace"
    os.chdir(ROOT)
    os.execve(command[0], command, environment)


if __name__ == "__main__":
    run_command(main)
