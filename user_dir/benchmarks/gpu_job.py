"""A section of ``scripts/gpu.py``: on which corpus, how small, what it runs and what it reports."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from ..checkout import ROOT
from ..corpora import load_corpus
from ..errors import UserError
from .machine import write_measurements
from .peer_systems import Workshop

SHOWN = 4000  # characters of a command's output


@dataclass
class Job:
    """A section to run: on which corpus, how small, and where its report goes.

    ``rehearse`` means the least of everything on the CPU; times are then meaningless.
    """

    rehearse: bool
    seed: int
    corpus: str
    data: Path | None  # folder of the corpora, if it is not the usual one
    output: Path
    report: dict
    system: str = ""  # of the section paper

    @property
    def device(self) -> torch.device:
        """The GPU; in a rehearsal the CPU."""
        return torch.device("cpu" if self.rehearse else "cuda")

    def least(self, rehearsed, measured):
        """The first in a rehearsal, else the second."""
        return rehearsed if self.rehearse else measured

    def done(self, part: str, found, tables: str) -> None:
        """Write what is known so far, with ``found`` under the name of its part, and print the tables."""
        self.report[part] = found
        write_measurements(self.output, self.report)
        print(f"{tables}\n", flush=True)

    def workshop(self, corpus, size: str, precision: str, max_tokens: int, scratch: Path) -> Workshop:
        """Builds systems of a size, the least one in a rehearsal."""
        size, precision = self.least(("tiny", "fp32"), (size, precision))
        return Workshop(corpus, size, precision, max_tokens, self.seed, self.device, scratch)

    def prepared(self):
        """The corpus, prepared."""
        return load_corpus(self.corpus, self.data).require_prepared()

    def run(self, *command: object, show: bool = False, limit: float | None = None) -> float:
        """Seconds of a command with the Python of this process, whose output goes to ``commands.log``.

        Raises:
            UserError: it failed, or took longer than ``limit`` seconds, when it is asked to end.
        """
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        words = [sys.executable, *map(str, command)]
        log = self.output.parent / "commands.log"
        begin = time.monotonic()
        with open(log, "ab") as file:
            before = file.tell()
            process = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=file, stderr=file)
            try:
                status = process.wait(limit)
            except subprocess.TimeoutExpired:
                process.terminate()
                status = process.wait() or 1
        seconds = time.monotonic() - begin
        if show or status:
            print(log.read_bytes()[before:][-SHOWN:].decode(errors="replace"), flush=True)
        if status:
            raise UserError(f"{' '.join(words[1:3])} ended with status {status}; see its output above")
        return seconds
