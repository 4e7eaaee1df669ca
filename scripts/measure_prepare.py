#!/usr/bin/env python3
"""Measure the cost of preparing a corpus: processor time of each stage, and memory of all processes together.

Generates a release: archives with the members that corpus.yaml names, of random words with realistic
frequencies, in sentences of realistic lengths. Nothing is downloaded. Memory is read from /proc, so this
needs Linux.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import _checkout  # noqa: F401  finds the package
import numpy as np

from user_dir.command_line import at_most, option_adder, path_of, plain_name, run_command, seed

ROOT = Path(__file__).resolve().parents[1]
STAMPS = {
    "download, extract, read, clean": "text/stamp.json",
    "normalise": "text/normalised/stamp.json",
    "learn the pieces": "spm.json",
    "segment, filter on pieces": "text/spm/stamp.json",
    "binarise": "bin/stamp.json",
}
LETTERS = {"de": "enisratdhulcgmobwfkzvpüäößjyxq", "ro": "eiartnucoslpdmăvbgfzîşţhâjxk"}
ENGLISH = "etaoinshrdlcumwfgypbvkjxqz"


def words_of(language: str, rng: np.random.Generator, number: int = 300_000) -> np.ndarray:
    """Distinct random words, the shorter the earlier, some with the punctuation that recipes normalise."""
    letters = np.array(list(LETTERS.get(language, ENGLISH)))
    weights = 1 / np.arange(2, len(letters) + 2)
    lengths = np.sort(rng.gamma(5, 1.8, number).astype(int) + 1)
    drawn = rng.choice(letters, lengths.sum(), p=weights / weights.sum())
    ends = lengths.cumsum()
    words = ["".join(drawn[end - length : end]) for end, length in zip(ends, lengths)]
    marks = {7: "{},", 31: "„{}“", 47: "({})", 53: "{}’s", 97: "{} – ", 101: "1 000 {}"}
    for every, mark in marks.items():
        words[every::every] = [mark.format(word) for word in words[every::every]]
    return np.array(words, dtype=object)


def sentences(words: np.ndarray, number: int, seed: int, rng: np.random.Generator):
    """Sentences of words after Zipf's law; their lengths are log-normal, 24 words on average.

    Those of the same ``seed`` are about as long, as translations are.
    """
    alike = np.random.default_rng(seed)
    frequencies = 1 / (np.arange(len(words)) + 2.7)
    upper = (frequencies / frequencies.sum()).cumsum()
    for start in range(0, number, 10_000):
        lengths = alike.lognormal(3.0, 0.6, min(10_000, number - start))
        lengths = np.clip(lengths * rng.normal(1, 0.1, len(lengths)), 1, 200).astype(int)
        drawn = words[np.minimum(upper.searchsorted(rng.random(lengths.sum())), len(words) - 1)]
        end = 0
        for length in lengths:
            yield " ".join(drawn[end : end + length]) + "."
            end += length


def make_release(corpus, pairs: int, folder: Path, seed: int) -> None:
    """Write into ``folder`` every raw file that ``corpus`` is read from, with ``pairs`` pairs to train on."""
    from user_dir.corpora.archives import split_name
    from user_dir.corpora.split_sources import sources_of

    members: dict[str, dict[str, Path]] = {}
    rng = np.random.default_rng(seed)
    words = {language: words_of(language, rng) for language in corpus.languages}
    for split in corpus.subsets:
        sources = sources_of(corpus.description, split)
        for source in sources:
            number = -(-pairs // len(sources)) if split == "train" else 3000
            for language, name in [*source.names.items(), *(source.references or {}).items()]:
                archive, member = split_name(name)
                path = folder / f"{len(members)}-{len(members.get(archive, {}))}.txt"
                with path.open("w", encoding="utf-8") as file:
                    for i, sentence in enumerate(sentences(words[language], number, number, rng)):
                        segment = source.form == "segments"
                        file.write(f'<seg id="{i}">{sentence}</seg>\n' if segment else sentence + "\n")
                members.setdefault(archive, {})[member or ""] = path
    for archive, files in members.items():
        (folder / archive).parent.mkdir(parents=True, exist_ok=True)
        if "" in files:
            files[""].rename(folder / archive)
            continue
        # Whatever its name tells, prepare.py looks at what it holds.
        with tarfile.open(folder / archive, "w:gz", compresslevel=1) as file:
            for member, path in files.items():
                file.add(path, member)
                path.unlink()


def memory(process: int) -> tuple[int, int]:
    """Bytes that a process and its descendants hold together, shared ones once; and those of the largest."""
    total = largest = 0
    waiting = [process]
    while waiting:
        each = waiting.pop()
        try:
            rows = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
            sizes = {row.split()[0]: int(row.split()[1]) * 1024 for row in rows if row.endswith("kB")}
            for task in Path(f"/proc/{each}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except (OSError, ValueError):
            continue  # it has ended
        total += sizes.get("Pss:", 0)
        largest = max(largest, sizes.get("Rss:", 0))
    return total, largest


def cpu_seconds(process: int) -> float:
    """What a process has used of the processors, with those of its children that have ended."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def measured(process: subprocess.Popen, folder: Path) -> tuple[dict[str, float], tuple[int, int]]:
    """Processor seconds until the end of each stage, and peak memory of all processes and of the largest."""
    peaks, used = (0, 0), {}
    while process.poll() is None:
        peaks = tuple(map(max, peaks, memory(process.pid)))
        for stage, stamp in STAMPS.items():
            if stage not in used and (folder / stamp).is_file():
                used[stage] = cpu_seconds(process.pid)
        time.sleep(0.2)
    if process.returncode:
        sys.exit(process.returncode)
    whole = resource.getrusage(resource.RUSAGE_CHILDREN)
    used.setdefault("binarise", whole.ru_utime + whole.ru_stime)
    return used, peaks


def main(argv=None) -> None:
    """Make the release, prepare it, print what that took."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = option_adder(parser)
    add("corpus", plain_name, "corpus to imitate, such as wmt14-en-de", metavar="CORPUS")
    add("--pairs", at_most(10**9), "training sentence pairs", required=True)
    add("--workers", at_most(1000), "processes and threads (default: 1)", default=1)
    add("--seed", seed, "random seed (default: 1)", default=1)
    add("--scratch", path_of, "folder for temporary files, about 2 KB per pair (default: the system's)")
    arguments = parser.parse_args(argv)

    from user_dir.corpora import load_corpus

    with tempfile.TemporaryDirectory(dir=arguments.scratch) as scratch:
        raw, data = Path(scratch, "raw"), Path(scratch, "data")
        raw.mkdir()
        data.mkdir()
        corpus = load_corpus(arguments.corpus, data)
        make_release(corpus, arguments.pairs, raw, arguments.seed)
        command = [sys.executable, str(ROOT / "scripts" / "prepare.py"), arguments.corpus, "--raw", str(raw)]
        command += ["--data", str(data), "--workers", str(arguments.workers)]
        used, peaks = measured(subprocess.Popen(command), corpus.folder)
    print(f"{arguments.pairs:,} pairs, {arguments.workers} worker(s), in seconds of one core:")
    before = 0.0
    for stage, seconds in used.items():
        rate = arguments.pairs / max(seconds - before, 0.01) * 60
        print(f"  {stage:<32}{seconds - before:>8.0f} s {rate:>12,.0f} pairs a minute")
        before = seconds
    print(f"  peak memory of all processes   {peaks[0] / 2**30:.2f} GiB, of one {peaks[1] / 2**30:.2f} GiB")


if __name__ == "__main__":
    run_command(main)
