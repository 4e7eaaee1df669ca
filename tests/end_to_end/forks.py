"""Python programs as forks of a process that has imported fairseq and the plugin, which saves most start-up
time.

Output and exit status are those of a separate process. A program started with ``anew`` is forked from a
process that has only imported libraries; it imports fairseq and the plugin itself, in its own order, and runs
to the interpreter's normal exit; with ``anew="nightly"`` so it is only where nightly tests run. Programs
started by a program are ordinary processes, except for fairseq's commands started by a program without
``anew``: they are forks, too.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import logging
import os
import resource
import runpy
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

from quick_hydra import quicken

ROOT = Path(__file__).resolve().parents[2]
NIGHTLY = "TESTS_NIGHTLY"  # set where nightly tests run
NO_NETWORK = Path(__file__).with_name("no_network")
# The imports that make importing fairseq slow.
LIBRARIES = ("torch.distributed.fsdp", "torch.onnx.operators", "sklearn.metrics", "hydra.experimental")
LIBRARIES += ("sacrebleu", "tensorboardX", "torch._dynamo")  # torch's optimizers import the last
LIBRARIES += ("matplotlib.figure", "sacremoses", "sentencepiece")
# The rest, including imports of our scripts.
LOADED = ("fairseq.sequence_generator", "fairseq.trainer", "user_dir.tasks", "torch.utils.serialization")
LOADED += ("user_dir.analysis.results", "user_dir.translation.evaluate")


def environment() -> dict[str, str]:
    """The current environment, limited to one thread and no network."""
    path = os.pathsep.join(filter(None, [str(NO_NETWORK), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}


class Forks:
    """Runs programs one after the other; each reads from and writes to files in ``folder``."""

    def __init__(self, folder: Path):
        self.files = [str(folder / name) for name in ("stdin", "stdout", "stderr")]
        self.parent = subprocess.Popen(
            [sys.executable, __file__],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # otherwise buffered lines would be invisible to select
        )
        self.pending = False

    def start(
        self,
        *words,
        cwd: Path = ROOT,
        stdin: str | Path = "",
        file_size: int | None = None,
        anew: bool | str = False,
    ) -> None:
        """Start ``python WORDS`` with a text or a file as stdin, and files of at most ``file_size`` bytes."""
        if self.pending:  # a test failed before waiting for its program
            self.kill(signal.SIGKILL)
        files = [str(stdin), *self.files[1:]] if isinstance(stdin, Path) else self.files
        if not isinstance(stdin, Path):
            Path(self.files[0]).write_text(stdin, encoding="utf-8")
        self.words = [str(word) for word in words]
        anew = NIGHTLY in os.environ if anew == "nightly" else anew
        asked = [anew, self.words, str(cwd), environment(), files, file_size]
        self.parent.stdin.write(json.dumps(asked).encode() + b"\n")
        self.pid = int(self.parent.stdout.readline())
        self.pending = True

    def running(self, timeout: float = 0) -> bool:
        """Whether the program runs, and still does after ``timeout`` seconds."""
        return not select.select([self.parent.stdout], [], [], timeout)[0]

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds, polling every half millisecond."""
        while not condition():
            assert self.running(), "it ended before: " + Path(self.files[2]).read_text()[-3000:]
            time.sleep(0.0005)

    def kill(self, number: int) -> subprocess.CompletedProcess:
        """Send a signal and wait for the program's end."""
        with contextlib.suppress(ProcessLookupError):  # it has already ended
            os.kill(self.pid, number)
        return self.finish()

    def finish(self, timeout: float = 600) -> subprocess.CompletedProcess:
        """Wait for the program's end; returns its output."""
        if self.running(timeout):
            self.kill(signal.SIGKILL)
            raise subprocess.TimeoutExpired(self.words, timeout)
        status = int(self.parent.stdout.readline())
        self.pending = False
        stdout, stderr = (Path(name).read_text(encoding="utf-8") for name in self.files[1:])
        return subprocess.CompletedProcess(self.words, status, stdout, stderr)

    def run(self, *words, timeout: float = 600, **options) -> subprocess.CompletedProcess:
        """Start a program and wait for its end."""
        self.start(*words, **options)
        return self.finish(timeout)

    def close(self) -> None:
        """End the forking process."""
        self.parent.communicate()


def next_program(loaded: bool = False) -> tuple[list[str], bool]:
    """Fork for each incoming program; returns, in the fork, its arguments, and whether fairseq is imported.

    The process that has only imported libraries passes programs that need no new start on to a fork of its
    own, which imports the rest and does the same.
    """
    # A shell starts background jobs with Ctrl-C ignored, and children inherit this.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    to_loaded = from_loaded = None
    for line in sys.stdin:
        anew, words, cwd, variables, files, file_size = json.loads(line)
        if not anew and not loaded:
            if to_loaded is None:
                (its_input, to_loaded), (from_loaded, its_output) = os.pipe(), os.pipe()
                if not os.fork():
                    os.dup2(its_input, 0), os.dup2(its_output, 1)
                    for descriptor in (its_input, to_loaded, from_loaded, its_output):
                        os.close(descriptor)
                    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
                    load()
                    return next_program(loaded=True)
                os.close(its_input), os.close(its_output)
                from_loaded = open(from_loaded, encoding="utf-8")  # noqa: SIM115
            os.write(to_loaded, line.encode())
            for _ in range(2):
                answer = from_loaded.readline()
                if not answer:  # otherwise the tests would wait for ever
                    sys.exit("the process that imports fairseq and the plugin has ended")
                print(answer, end="", flush=True)
            continue
        pid = os.fork()
        if not pid:
            os.environ.clear()
            os.environ.update(variables)
            os.chdir(cwd)
            for stream, name in enumerate(files):
                os.dup2(os.open(name, os.O_RDWR | (os.O_CREAT | os.O_TRUNC if stream else 0)), stream)
            sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  the old one has read ahead
            if file_size is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
            return words, loaded
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    sys.exit()


def load() -> None:
    """Import fairseq and the plugin, and leave the rest as in a newly started interpreter."""
    sys.path.insert(0, str(ROOT))
    for name in LOADED:
        importlib.import_module(name)
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    quicken()
    # hydra's parser is slow until it has parsed such settings once.
    words = ["data", "--arch", "adaptively_sparse_transformer"]
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), words))
    logging.disable(logging.NOTSET)
    sys.path.remove(str(ROOT))
    logging.root.handlers.clear()  # only the first basicConfig of a program has an effect
    logging.root.setLevel(logging.WARNING)
    subprocess.run = forking(subprocess.run)
    gc.freeze()  # otherwise garbage collection in each fork would copy all memory


def forking(run: Callable) -> Callable:
    """``subprocess.run`` that runs ``python -m fairseq_cli.…`` in a fork of this process."""

    def run_or_fork(command, **options):
        if command[1:2] != ["-m"] or not command[2].startswith("fairseq_cli."):
            return run(command, **options)
        assert set(options) == {"cwd", "stdout", "stderr"}, options
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            return subprocess.CompletedProcess(command, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        code = 1
        try:
            os.chdir(options["cwd"])
            for stream in (1, 2):
                os.dup2(options["stdout"].fileno(), stream)
            sys.argv = command[2:]
            runpy.run_module(command[2], run_name="__main__", alter_sys=True)
            code = 0
        except SystemExit as end:
            code = end.code
        except BaseException:
            traceback.print_exc()
        finally:
            leave(code)

    return run_or_fork


def leave(code: int | str | None) -> None:
    """End like the interpreter, but without freeing all memory: that takes longer than most programs."""
    threading._shutdown()
    atexit._run_exitfuncs()
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except OSError:
        code = 120
    os._exit((code or 0) & 0xFF)


if __name__ == "__main__":
    for library in LIBRARIES:
        importlib.import_module(library)
    gc.freeze()
    words, loaded = next_program()
    code = None
    try:
        if words[0] == "-m":
            sys.argv, sys.path[0] = words[1:], os.getcwd()
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv, sys.path[0] = words, os.path.dirname(words[0])
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        code = end.code
    leave(code) if loaded else sys.exit(code)
