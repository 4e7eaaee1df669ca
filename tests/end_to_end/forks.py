"""Python programs as forks of the process of the tests, which has imported fairseq and the plugin.

They are forked from a child that does nothing else, made before the first test. Output and exit status are
those of a separate process. A program started ``anew`` is one; with ``anew="nightly"``, where nightly tests
run.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import logging
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NIGHTLY = "TESTS_NIGHTLY"  # set where nightly tests run
NO_NETWORK = Path(__file__).with_name("no_network")
# What scripts import besides the plugin.
LOADED = ("fairseq.trainer", "sacrebleu", "sacremoses", "sentencepiece", "tensorboardX", "torch._dynamo")
LOADED += ("fairseq.quantization_utils", "langcodes", "matplotlib.figure")
LOADED += ("torch.utils.serialization", "user_dir.analysis.results")
LOADED += ("user_dir.hugging_face", "user_dir.translation.evaluate")


def environment() -> dict[str, str]:
    """The current environment, limited to one thread and no network."""
    path = os.pathsep.join(filter(None, [str(NO_NETWORK), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}


class Forks:
    """Runs programs one after the other; each reads from and writes to files in a temporary folder."""

    def __init__(self):
        (its_input, self.requests), (self.answers, its_output) = os.pipe(), os.pipe()
        self.parent = os.fork()
        if not self.parent:
            os.close(self.requests), os.close(self.answers)
            try:
                serve(its_input, its_output)
            finally:
                os._exit(1)
        os.close(its_input), os.close(its_output)
        self.folder = tempfile.TemporaryDirectory()
        self.files = [os.path.join(self.folder.name, name) for name in ("stdin", "stdout", "stderr")]
        self.pending = False

    def start(self, *words, cwd: Path = ROOT, stdin: str = "") -> None:
        """Start ``python WORDS``."""
        if self.pending:  # a test failed before waiting for its program
            self.kill(signal.SIGKILL)
        Path(self.files[0]).write_text(stdin, encoding="utf-8")
        self.words = [str(word) for word in words]
        asked = [self.words, str(cwd), environment(), self.files]
        os.write(self.requests, json.dumps(asked).encode() + b"\n")
        self.pid, self.pending = self._answer(), True

    def _answer(self) -> int:
        line = b""
        while not line.endswith(b"\n"):
            line += os.read(self.answers, 1) or sys.exit("the process that forks programs has ended")
        return int(line)

    def running(self, timeout: float = 0) -> bool:
        """Whether the program runs, and still does after ``timeout`` seconds."""
        return not select.select([self.answers], [], [], timeout)[0]

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
        status, self.pending = self._answer(), False
        stdout, stderr = (Path(name).read_text(encoding="utf-8") for name in self.files[1:])
        return subprocess.CompletedProcess(self.words, status, stdout, stderr)

    def run(
        self, *words, timeout: float = 600, anew: bool | str = False, cwd: Path = ROOT, stdin: str = ""
    ) -> subprocess.CompletedProcess:
        """Start a program and wait for its end."""
        if NIGHTLY in os.environ if anew == "nightly" else anew:
            command = [sys.executable, *map(str, words)]
            options = {"capture_output": True, "encoding": "utf-8", "env": environment(), "cwd": cwd}
            return subprocess.run(command, input=stdin, timeout=timeout, **options)
        self.start(*words, cwd=cwd, stdin=stdin)
        return self.finish(timeout)

    def close(self) -> None:
        """End the forking process, also where another child of this one still holds its input open."""
        os.kill(self.parent, signal.SIGKILL)
        os.waitpid(self.parent, 0)
        self.folder.cleanup()


@functools.cache
def forks() -> Forks:
    """The one of this process; ``conftest.py`` asks for it before the first test."""
    made = Forks()
    atexit.register(made.close)
    return made


def serve(requests: int, answers: int) -> None:
    """Fork for each incoming program, and tell its number and its status."""
    # A shell starts background jobs with Ctrl-C ignored, and children inherit this.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    loaded = False
    with open(requests, encoding="utf-8") as lines:
        for line in lines:
            loaded = loaded or load()
            words, *where = json.loads(line)
            pid = os.fork()
            if not pid:
                run(words, *where)
            os.write(answers, b"%d\n" % pid)
            os.write(answers, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def import_loaded() -> None:
    """Import what scripts need; in silence, since libraries log at DEBUG."""
    logging.disable(logging.CRITICAL)
    for name in LOADED:
        importlib.import_module(name)
    logging.disable(logging.NOTSET)


def load() -> bool:
    """Import the rest, and leave logging and warnings as in a newly started interpreter."""
    warnings.simplefilter("ignore")
    import_loaded()
    logging.disable(logging.CRITICAL)
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    # hydra is slow until it has composed such settings once.
    training = "data --arch adaptively_sparse_transformer --optimizer adam"
    training += " --criterion label_smoothed_cross_entropy"
    for parser, words in (
        (options.get_training_parser(), training),
        (options.get_generation_parser(), "data --path x"),
    ):
        convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, words.split()))
    logging.disable(logging.NOTSET)
    logging.root.handlers.clear()  # only the first basicConfig of a program has an effect
    logging.root.setLevel(logging.WARNING)
    gc.freeze()  # otherwise garbage collection in each fork would copy all memory
    gc.enable()
    return True


def run(words: list[str], cwd: str, variables: dict[str, str], files: list[str]) -> None:
    """Run a program in this process, and end it like the interpreter."""
    os.environ.clear()
    os.environ.update(variables, HYDRA_FULL_ERROR="1")  # which the plugin sets where it is loaded
    os.chdir(cwd)
    for stream, name in enumerate(files):
        os.dup2(os.open(name, os.O_RDWR | (os.O_CREAT | os.O_TRUNC if stream else 0)), stream)
    sys.stdin, sys.stdout, sys.stderr = (
        open(stream, "w" if stream else "r", encoding="utf-8", closefd=False)  # noqa: SIM115
        for stream in range(3)
    )
    code: int | str | None = 1
    try:
        runpy.run_path(str(NO_NETWORK / "sitecustomize.py"))
        if words[0] == "-m":
            sys.argv, sys.path[0] = words[1:], cwd
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv, sys.path[0] = words, os.path.dirname(words[0])
            runpy.run_path(words[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        leave(code)


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
