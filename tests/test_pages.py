"""The documentation: links, anchors and tables are whole; scripts, flags, make targets and files exist.

README's table is that of the records and of docs/benchmarks.md.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import shlex
import statistics
import unicodedata
from pathlib import Path
from urllib.parse import unquote

import pytest
from fairseq import options
from helpers import cells_of

from user_dir.attention.normalizers import NORMALIZERS
from user_dir.io import read_text
from user_dir.packed_folders import expanded

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "findings/README.md")]
PAGES += (
    sorted((ROOT / "docs").glob("*.md"))
    + sorted((ROOT / "experiments").glob("*.md"))
    + sorted((ROOT / "data").glob("**/README.md"))
)
FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^()\s]+)\)")
PACKAGE = ("user_dir", "adaptively_sparse")
FOLDERS = "scripts|user_dir|tests|configs|experiments|data|docs|findings"
FILE = re.compile(rf"(?<![\w/.])((?:{FOLDERS})/[\w./-]*\w\.(?:py|md|sh|yaml|cpp|h|svg))\b")
TARGET = re.compile(r"(?:`|^\s*|&& )make (?:[A-Z]+=\S+ )*([a-z][a-z-]*)", re.MULTILINE)

TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
SCRIPTS = {path.name for path in (ROOT / "scripts").glob("[a-z]*.py")}


def names(pages: list[Path]) -> list[str]:
    return [page.relative_to(ROOT).as_posix() for page in pages]


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?)\s*#*$", FENCE.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        kept = [c for c in plain if c in " -_" or unicodedata.category(c)[0] in "LNM"]
        slug = "".join(kept).replace(" ", "-")
        number, each = 0, slug
        while each in found:
            number += 1
            each = f"{slug}-{number}"
        found.add(each)
    return found


def broken_links(page: Path, text: str) -> list[str]:
    """Relative links of a page that lead nowhere."""
    broken = []
    for link in LINK.findall(FENCE.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        found = target.exists() and target.resolve().is_relative_to(ROOT)
        if not found or (anchor and unquote(anchor) not in anchors(target.read_text(encoding="utf-8"))):
            broken.append(link)
    return broken


def cells(row: str) -> list[str]:
    """The cells of a table row, with what is before its first and after its last bar."""
    return re.split(r"(?<!\\)\|", row)


def broken_tables(text: str) -> list[str]:
    """Lines that begin like a table's but belong to none, or have another number of cells than its head."""
    broken = []
    for block in re.findall(r"(?:^\|.*\n)+", FENCE.sub("", text), re.MULTILINE):
        head, *rest = block.splitlines()
        if not rest or not re.fullmatch(r"[| :-]+", rest[0]):
            broken.append(head)
        broken += [row for row in rest if len(cells(row)) != len(cells(head))]
    return broken


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Each command of a page that runs a script: the script's name, and the flags given to it."""
    lines = [line for block in FENCE.finditer(text) for line in re.sub(r"\\\n", " ", block[0]).splitlines()]
    lines += re.findall(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)", FENCE.sub("", text))
    found = []
    for line in lines:
        for part in re.split(r"[|;]| && ", re.sub(r"(^|\s)#.*", "", line)):
            script = re.search(r"(?:^|[\s/])([a-z_]+\.py)(\s.*|$)", part, re.DOTALL)
            if script:
                found.append((script[1], re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", script[2])))
    return found


def known_flags(script: str) -> set[str]:
    """The flags in the source of a script and of what the scripts share."""
    folder = ROOT / "user_dir" / "commands"
    paths = [ROOT / "scripts" / script, folder / script, *folder.glob("*options.py")]
    paths = [path for path in paths if path.is_file()]
    return {
        flag
        for path in paths
        for flag in re.findall(r'"(--[a-z][a-z0-9-]+)"', path.read_text(encoding="utf-8"))
    }


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_a_page_is_whole(page):
    """Links, anchors and tables; files, make targets, scripts and flags; what its Python examples import."""
    text = page.read_text(encoding="utf-8")
    assert broken_links(page, text) == [] and broken_tables(text) == []
    named = [path for path in FILE.findall(text) if not re.search(r"/[A-Z]+/|/talks/", path)]  # examples
    assert [path for path in named if not (ROOT / path).exists()] == []
    assert set(TARGET.findall(text)) <= TARGETS
    assert set(re.findall(r"\bscripts/(\w+\.py)", text)) <= SCRIPTS
    for script, flags in commands(text):
        if script in SCRIPTS:
            assert set(flags) <= known_flags(script) | {"--help"}, script
    for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in PACKAGE:
                module = importlib.import_module(node.module.replace("adaptively_sparse", "user_dir", 1))
                assert [name.name for name in node.names if not hasattr(module, name.name)] == []


def test_a_broken_link_is_found():
    page = ROOT / "README.md"
    wrong = ["#no", "docs/none.md", "docs/results.md#no", "../x.md"]
    right = ["#try-it", "docs/results.md", "docs/results.md#small-models", "data/toy", "https://a.b/c"]
    assert broken_links(page, " ".join(f"[a]({link})" for link in right + wrong)) == wrong
    assert anchors("# α-entmax & `code`") == {"α-entmax--code"}
    assert anchors("# A\n## A\n```\n# no heading\n```\n## [B c](x.md)\n") == {"a", "a-1", "b-c"}


def test_a_broken_table_is_found():
    table = "| a | b |\n|---|---|\n| `x \\| y` | z |\n"
    assert broken_tables(f"text\n\n{table}\n```\n| no table |\n```\n") == []
    parted, long = "| parted | from it |", "| a | b | c |"
    assert broken_tables(f"{table}\n{parted}\n\n{table}{long}\n") == [parted, long]


def test_commands_and_targets_are_found():
    """The searches above find what they are to check."""
    text = "```\npython scripts/evaluate.py --path a \\\n  --corpus b  # --no\nmake demo\n```\n`train.py --x`"
    assert commands(text) == [("evaluate.py", ["--path", "--corpus"]), ("train.py", ["--x"])]
    assert TARGET.findall("`make test`\nmake PYTHON=python3.12 demo\nto make something") == ["test", "demo"]
    assert {"demo", "test"} <= TARGETS
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert {script for script, _ in commands(readme)} >= {"evaluate.py", "train.py", "compare.py"}
    assert {"demo", "test"} <= set(TARGET.findall(readme))


def test_what_a_page_says_of_a_normalizer_is_what_the_normalizer_says():
    page = (ROOT / "docs" / "options.md").read_text(encoding="utf-8").partition("## Normalizers")[2]
    shown = {row[0].strip("`"): row[1:] for row in cells_of(page) if row[0].strip("`") in NORMALIZERS}
    assert len(shown) >= 6
    for name, row in shown.items():
        normalizer = NORMALIZERS[name]
        alpha = "learned" if normalizer.alpha is None else f"{normalizer.alpha:g}"
        assert row == [normalizer.equation, alpha, normalizer.source]


def test_every_page_is_in_the_index_and_the_readme_is_short():
    index = set(LINK.findall((ROOT / "docs" / "README.md").read_text(encoding="utf-8")))
    pages = {page.name for pattern in ("*.md", "*.ipynb") for page in (ROOT / "docs").glob(pattern)}
    assert pages - {"README.md"} <= index
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def rows(text: str) -> list[list[str]]:
    """The cells of all table rows of a page."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip(" *×") for cell in cells(line)[1:-1]] for line in lines]


SYSTEMS = {
    "softmax": "softmax",
    "1.5-entmax": "entmax15",
    "α-entmax": "alpha_entmax",
    "sparsemax": "sparsemax",
}
TEST_SETS = "test_2016_flickr", "test_2017_flickr"


def seeds_of(name: str, count: int) -> list[Path]:
    """The records of a run, which has so many seeds."""
    results = expanded(ROOT / "experiments" / "records" / f"{name}-seed*" / "result.json")
    assert len(results) == count
    return [result.parent for result in results]


def score(run: Path, test_set: str, metric: str) -> float:
    return json.loads(read_text(run / "evaluation" / f"{test_set}.json", "the record"))[metric]


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_table_of_the_readme_is_that_of_the_records(system):
    """BLEU up to the last digit: the records have it rounded, and compare.py needs the references."""
    (row,) = [row for row in rows((ROOT / "README.md").read_text(encoding="utf-8")) if row[0] == system]
    runs = seeds_of(f"comparison/de-en-{SYSTEMS[system]}", 3)
    for test_set, cell in zip(TEST_SETS, row[1:3]):
        scores = [score(run, test_set, "bleu") for run in runs]
        mean, deviation = map(float, cell.split(" ± "))
        assert mean == pytest.approx(statistics.mean(scores), abs=0.0101)
        assert deviation == pytest.approx(statistics.stdev(scores), abs=0.0101)
    heads = [json.loads(read_text(run / "average.heads.json", "the record"))["heads"] for run in runs]
    types = ("encoder_self", "decoder_self", "decoder_context")
    found = [
        [head["density"] for seed in heads for head in seed if head["attention"] == kind] for kind in types
    ]
    assert row[3] == ", ".join(f"{statistics.mean(values):.2f}" for values in found)


SEEDS = {"one": 1, "two": 2, "three": 3}


def test_the_scores_of_the_published_baseline_in_the_readme_are_those_of_the_records():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    score_pair = r"([\d.]+) and ([\d.]+)"
    ((*said, seeds),) = re.findall(
        rf"softmax has {score_pair},\sα-entmax {score_pair} \(([a-z]+)\sseeds\seach\)", readme
    )
    for name, scores in (("softmax", said[:2]), ("alpha_entmax", said[2:])):
        runs = seeds_of(f"published/{name}-8192", SEEDS[seeds])
        means = [
            statistics.mean(score(run, test_set, "tokenized_bleu_lowercased") for run in runs)
            for test_set in TEST_SETS
        ]
        assert scores == [f"{mean:.1f}" for mean in means]


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_speeds_of_the_readme_are_those_of_the_benchmarks(system):
    (row,) = [row for row in rows((ROOT / "README.md").read_text(encoding="utf-8")) if row[0] == system]
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    one_thread = page[page.index("One thread") : page.index("The size of")]
    training, translation = [each for each in rows(one_thread) if each[0] == f"ours, {system}"]
    assert row[4:] == [training[3], translation[3]]


def fairseq_commands(text: str) -> dict[str, list[str]]:
    """The fairseq commands of a page's code blocks: the last part of the name, and the words after it."""
    blocks = [re.sub(r"\\\n", " ", block[0]) for block in FENCE.finditer(text)]
    found = re.findall(r"\bfairseq-([a-z]+) (data/.*)", "\n".join(blocks))
    return {name: shlex.split(words, comments=True) for name, words in found}


def test_fairseq_takes_the_flags_of_the_readme():
    parsers = {
        "train": options.get_training_parser,
        "generate": options.get_generation_parser,
        "interactive": options.get_interactive_generation_parser,
    }
    found = fairseq_commands((ROOT / "README.md").read_text(encoding="utf-8"))
    assert found.keys() == parsers.keys()
    for name, words in found.items():
        words[words.index("user_dir")] = str(ROOT / "user_dir")
        args = options.parse_args_and_arch(parsers[name](), input_args=words)
        assert args.data == "data/multi30k/bin"
        assert name != "train" or args.arch == "adaptively_sparse_transformer_tiny"
    with pytest.raises(SystemExit):
        options.parse_args_and_arch(parsers["train"](), input_args=[*found["train"], "--no-such-flag"])
