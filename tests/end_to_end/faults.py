"""A program in which one operation on the files of a folder goes wrong.

usage: faults.py FOLDER HOW NUMBER LOG PROGRAM ARGUMENT…
Operations are writes, fsyncs, renames, and openings of files to be written. The one with this number, counted
from 1, fails as on a full disk (HOW is fail), or the process is killed there (kill); half of what a write was
to write is written. LOG gets the number of operations, if the program ends by itself.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import runpy
import shutil
import signal
import sys


class Faults:
    """Operations on files below ``folder``, counted."""

    def __init__(self, folder: str, how: str, number: int):
        self.folder, self.how, self.number, self.count = folder, how, number, 0

    def strike(self, path: str | os.PathLike) -> None:
        """To be called before an operation."""
        if not os.path.abspath(path).startswith(self.folder):
            return
        self.count += 1
        if self.count == self.number:
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))

    def install(self) -> None:
        """Have all of Python's operations on files counted."""
        strike, open_file, open_number = self.strike, io.open, os.open

        class Counted(io.FileIO):
            error = None

            def write(self, data):
                if self.error is not None:  # for the rest
                    error, self.error = self.error, None
                    raise error
                try:
                    strike(self.name)
                except OSError as error:
                    if len(data) < 2:
                        raise
                    self.error = error
                    data = memoryview(data)[: len(data) // 2]
                return super().write(data)

        def opened(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, *more):
            if isinstance(file, int) or not set(mode) & set("wxa+") or more:
                return open_file(file, mode, buffering, encoding, errors, newline, *more)
            strike(file)
            raw = Counted(file, mode.replace("b", "").replace("t", ""))
            if buffering == 0:
                return raw
            binary = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
            return binary if "b" in mode else io.TextIOWrapper(binary, encoding, errors, newline)

        def opened_number(path, flags, *more, **options):
            if flags & os.O_CREAT:
                strike(path)
            return open_number(path, flags, *more, **options)

        def counted(function, place):
            def call(*arguments, **options):
                strike(place(*arguments))
                return function(*arguments, **options)

            return call

        builtins.open = io.open = opened
        os.open = opened_number
        os.fsync = counted(os.fsync, lambda number: os.readlink(f"/proc/self/fd/{number}"))
        os.rename, os.replace = (
            counted(function, lambda source, target: target) for function in (os.rename, os.replace)
        )
        shutil._USE_CP_SENDFILE = False  # which writes past Python


if __name__ == "__main__":
    folder, how, number, log, *words = sys.argv[1:]
    faults = Faults(folder, how, int(number))
    try:
        faults.install()
        if words[0] == "-m":
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv, sys.path[0] = words, os.path.dirname(words[0])
            runpy.run_path(words[0], run_name="__main__")
    finally:
        faults.folder = "nowhere"
        with open(log, "w") as file:
            file.write(str(faults.count))
