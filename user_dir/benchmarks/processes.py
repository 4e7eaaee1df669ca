"""Translating in a process of its own: time from its start to its end, and the most memory that it had."""

from __future__ import annotations

import functools
import os
import resource
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

from .. import models  # noqa: F401  registers the model
from ..checkpoints import load_checkpoint, model_settings
from ..releases.archive import CARD, CHECKPOINT, DESCRIPTION, write_archive
from ..releases.building import released_state
from ..releases.opened import opened
from ..safetensors_checkpoints import write_safetensors
from ..tables import Column, mebibytes, table
from ..translation.limits import Limit
from .ctranslate2_peer import export
from .measure import interleaved, quartiles
from .peer_systems import SIZES

PACKAGE = __name__.partition(".")[0]
LENGTH = 30  # pieces of a translation at most: those of random parameters do not end

# Each is followed by END, and has the paths of an archive, a folder of CTranslate2's, pieces and sentences.
IMPORT = "import torch"
COMMAND = """
from {package}.commands.translate import main
main([{flags}'--path', {archive!r}, '--input', {text!r}])
"""
BY_FAIRSEQ = """
from pathlib import Path
from {package}.releases.opened import opened
from {package}.translation.translator import open_translator
with opened([Path({archive!r})]) as (checkpoints, corpus):
    translator = open_translator(checkpoints, corpus, cpu=True, by_fairseq=True, max_len_b={length})
translator(Path({text!r}).read_text(encoding="utf-8").rstrip("\\n").split("\\n"))
"""
CTRANSLATE2 = """
import ctranslate2, sentencepiece
pieces = sentencepiece.SentencePieceProcessor(model_file={pieces!r})
translator = ctranslate2.Translator({peer!r}, compute_type={kind!r}, intra_threads={threads})
given = [pieces.encode(line.rstrip("\\n"), out_type=str) for line in open({text!r}, encoding="utf-8")]
results = translator.translate_batch(given, beam_size=5, max_decoding_length={length} + 1, max_batch_size=0)
print(*[pieces.decode(each.hypotheses[0]) for each in results], sep="\\n")
"""
END = """
import sys
status = open("/proc/self/status").read()
print(status.partition("VmHWM:")[2].split()[0], file=sys.stderr)
"""


@contextmanager
def programs(archive: Path, size: str, threads: int) -> Iterator[Callable[[list[str]], dict[str, str]]]:
    """A function that gives programs, by name, which translate sentences with one model.

    Its parameters are random, and its attention is softmax, which CTranslate2 has as well.

    Args:
        archive: a release, whose vocabulary and preprocessing the model has.
        size: of the model, one of :data:`.peer_systems.SIZES`.
        threads: for CTranslate2.
    """
    with tempfile.TemporaryDirectory() as folder:
        places = {name: str(Path(folder) / name) for name in ("archive.tar", "peer", "pieces", "text")}
        with opened([archive]) as ((checkpoint,), corpus):
            state = load_checkpoint(checkpoint)
            words = Dictionary.load(str(corpus.bin / f"dict.{corpus.languages[0]}.txt"))
            task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
            model, settings = _random_model(size, task)
            state["cfg"]["model"] = {**dict.fromkeys(model_settings(state)), **vars(settings)}
            state["model"] = model.state_dict()
            write_safetensors(released_state(state, Limit()), Path(folder) / CHECKPOINT)
            files = [corpus.folder / DESCRIPTION, corpus.pieces, *sorted(corpus.bin.iterdir())]
            contents = {each.name: each.read_bytes() for each in (Path(folder) / CHECKPOINT, *files)}
            write_archive(corpus.name, {CARD: b"", **contents}, Path(places["archive.tar"]))
            Path(places["pieces"]).write_bytes(corpus.pieces.read_bytes())
        Path(places["peer"]).mkdir()
        export(model, task, Path(places["peer"]))
        given = {"archive": places.pop("archive.tar"), **places, "package": PACKAGE, "length": LENGTH}
        given["threads"] = threads

        def named(sentences: list[str]) -> dict[str, str]:
            Path(places["text"]).write_text("".join(f"{each}\n" for each in sentences), encoding="utf-8")
            flags = f"'--cpu', '--max-len-b', '{LENGTH}', "
            found = {
                "import of torch alone": IMPORT,
                "ours": COMMAND.format(**given, flags=flags),
                "ours, int8": COMMAND.format(**given, flags=f"{flags}'--int8', "),
                "ours, by fairseq": BY_FAIRSEQ.format(**given),
            }
            for kind in ("float32", "int8"):
                found[f"CTranslate2, {kind}"] = CTRANSLATE2.format(**given, kind=kind)
            return {name: program + END for name, program in found.items()}

        yield named


def _random_model(size: str, task) -> tuple[torch.nn.Module, Namespace]:
    settings = Namespace(share_all_embeddings=True, attention_normalizer="softmax", _name=SIZES[size])
    settings.encoder_normalize_before = settings.decoder_normalize_before = True
    ARCH_CONFIG_REGISTRY[SIZES[size]](settings)
    torch.manual_seed(1)
    return ARCH_MODEL_REGISTRY[SIZES[size]].build_model(settings, task).eval(), settings


def time_processes(named: Mapping[str, str], rounds: int, seed: int, threads: int) -> list[dict]:
    """Run each program in every round; quartiles of ``seconds`` and ``cpu_seconds``, and ``peak_bytes``.

    Raises:
        RuntimeError: a program failed.
    """
    found: dict[str, list[dict]] = {name: [] for name in named}

    def job(name: str, number: int) -> float:
        found[name].append(_measured(named[name], threads))
        return found[name][-1]["seconds"]

    interleaved({name: functools.partial(job, name) for name in named}, rounds, seed, "processes")
    return [
        {
            "system": name,
            **{key: quartiles([each[key] for each in runs]) for key in ("seconds", "cpu_seconds")},
            "peak_bytes": max(each["peak_bytes"] for each in runs),
        }
        for name, runs in found.items()
    ]


def _measured(program: str, threads: int) -> dict:
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(root)}
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return {
        "seconds": seconds,
        "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        # ru_maxrss would have that of this process, too, from which the program's was forked
        "peak_bytes": int(done.stderr.split()[-1]) * 1024,
    }


def processes_table(rows: list[dict]) -> str:
    """Rows of :func:`time_processes` as Markdown."""
    columns = [
        Column("s", lambda row: f"{row['seconds']['median']:.2f}"),
        Column("s of CPU", lambda row: f"{row['cpu_seconds']['median']:.2f}"),
        Column("peak memory, MiB", lambda row: mebibytes(row["peak_bytes"], ".0f")),
    ]
    return table(["system"], [([row["system"]], row) for row in rows], columns)
