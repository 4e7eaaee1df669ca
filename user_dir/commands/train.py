"""Train a model: fairseq-hydra-train with this plugin loaded and the config checked first.

Paths in a config are relative to the root of this repository. Settings after the config override it, whether
it names them or not; hydra's +key=value and ~key also work:

    python scripts/train.py configs/toy/alpha_entmax.yaml optimization.max_update=500 model.encoder_layers=2

Prints a line per log interval: update, epoch, loss, perplexity, α, learning rate and words per second. To
resume an interrupted training from its last checkpoint, repeat the command.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from ..files import PLUGIN, ROOT, SHARED
from .options import Parser

# fairseq's command, with the guards. Without basicConfig, one of its imports has all libraries log at DEBUG.
FAIRSEQ = "import logging; logging.basicConfig(level=logging.INFO); "
FAIRSEQ += f"from fairseq_cli.hydra_train import cli_main; import {PLUGIN.name}.tasks; cli_main()"

# glibc returns the memory of large CPU tensors to the system when they are freed, and the system clears it
# before reuse, for every large tensor of every update. Keeping the memory is faster but needs more of it.
# Memory in pages of 2 MiB is read and written faster.
MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
MEMORY["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=1"


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(__doc__)
    # If it were required, argparse would report the optional settings as missing, too.
    what = "config, such as configs/toy/alpha_entmax.yaml"
    parser.add("config", Path, what, nargs="?", metavar="CONFIG")
    parser.add("overrides", str, "settings that override the config", nargs="*", metavar="key=value")
    what = "print fairseq's whole log, which also goes to hydra_train.log in the folder of the checkpoints"
    parser.add_switch("--verbose", what)
    args = parser.parse_intermixed_args(argv)  # flags may stand between settings
    if args.config is None:
        parser.error("no CONFIG: the YAML file of a training, such as configs/toy/alpha_entmax.yaml")
    return args


def main(argv=None) -> None:
    """Check the config, then become fairseq-hydra-train."""
    args = parse_args(argv)

    from ..config import training_arguments
    from ..guards.short_log import SHORT, VARIABLE

    if not args.config.is_file() and (SHARED / args.config).is_file():
        args.config = SHARED / args.config  # one that comes with the package
    arguments = training_arguments(args.config, args.overrides, ROOT)
    environment = {**MEMORY, **os.environ}
    if sys.stdout is not None:  # fairseq's log contains α, which not every terminal can show
        environment["PYTHONIOENCODING"] = f"{sys.stdout.encoding}:backslashreplace"
    if not args.verbose:
        environment[VARIABLE] = SHORT
    command = [sys.executable, "-W", "ignore::UserWarning", "-W", "ignore::FutureWarning", "-c", FAIRSEQ]
    os.chdir(ROOT)
    os.execve(command[0], [*command, *arguments], environment)
