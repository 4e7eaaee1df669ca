"""Miniatures of the published releases: archives, members, markup and the peculiarities of their text."""

from __future__ import annotations

import io
import tarfile
import unicodedata
import zipfile
from pathlib import Path
from random import Random

from user_dir.corpora.corpus import DATA

TRAIN, VALID, TEST = 150, 9, 11  # pairs of ordinary sentences
VOCABULARY = {"kftt-ja-en": 100, "wmt16-ro-en": 90}
# Pairs in every training text: their peculiarities must be preserved, except for empty sides.
ODD = [
    ("Forschung & Entwicklung, R&D.", "Research & development, R&D."),
    ("Eine\u2028Zeile mit \x85Trennern\u2029.", "One\u2028line with \x85separators\u2029."),
    (unicodedata.normalize("NFD", "Käse für alle."), unicodedata.normalize("NFC", "Cheese for the café.")),
    ("„So“, sagte er – und ging…", "“So”, he said — and ‘left’…"),
    ("5 < 6 und 7 > 6", "5 < 6 and 7 > 6"),
]
EMPTY = [("", "Nothing on the left."), ("Rechts nichts.", " "), ("", "")]
LONG = ("Wort " * 300 + ".", "word " * 300 + ".")
UNLIKE = ("Ja.", "This is a translation that says a good deal more than what it translates.")


def german(number: int, seed: int) -> list[tuple[str, str]]:
    sides = (
        (DATA / "toy" / "raw" / f"train.{side}").read_text("utf-8").splitlines() for side in ("de", "en")
    )
    return Random(seed).sample(list(zip(*sides)), number)


def romanian(number: int, seed: int) -> list[tuple[str, str]]:
    return [
        (
            f"Câinele {i + seed} vede pisica și „casa” mare.",
            f"Dog {i + seed} sees the cat and the big “house”.",
        )
        for i in range(number)
    ]


def japanese(number: int, seed: int) -> list[tuple[str, str]]:
    return [
        (f"京都 の 寺 は {i + seed} 年 に 建て られ た 。", f"The temple of Kyoto was built in {i + seed} .")
        for i in range(number)
    ]


def columns(pairs) -> tuple[list[str], list[str]]:
    return tuple(map(list, zip(*pairs)))


# ------------------------------------------------------------------------------ files


def lines(texts: list[str], newline: str = "\n", mark: str = "", trailing: int = 0) -> bytes:
    return (mark + "".join(text + newline for text in [*texts, *[""] * trailing])).encode()


def train_tags(texts: list[str], talk: int = 30) -> bytes:
    """As in ``train.tags``: tagged metadata before each talk, untagged text in between."""
    rows = []
    for start in range(0, len(texts), talk):
        rows += [
            f'<doc docid="{start}" genre="lectures">',
            f"<url>http://www.ted.com/talks/{start}&l=de</url>",
        ]
        rows += ["<keywords>talks, R&D, history</keywords>", "<speaker>A. Speaker</speaker>"]
        rows += [f"<talkid>{start}</talkid>", f"<title>Talk {start}</title>"]
        rows += ["<description>TED Talk Subtitles and Transcript: Of this & that.</description>"]
        rows += ['<reviewer href="http://www.ted.com/p/1">A Reviewer</reviewer>']
        rows += ['<translator href="http://www.ted.com/p/2">A Translator</translator>']
        rows += [f" {text} " for text in texts[start : start + talk]] + ["</doc>"]
    return lines(rows)


def described(number: int, talk: int = 30) -> int:
    """The number of lines of titles and descriptions that ``train_tags`` adds."""
    return 2 * -(-number // talk)


def ted_xml(texts: list[str], kind: str, language: str) -> bytes:
    rows = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        "<mteval>",
        f'<{kind} setid="tst" srclang="{language}">',
    ]
    rows += ['<doc docid="1" genre="lectures">', "<url>http://www.ted.com/talks/1?a=b&c=d</url>"]
    rows += ["<title>A title & more</title>", "<description>What it is.</description>"]
    rows += [f'<seg id="{i}"> {text} </seg>' for i, text in enumerate(texts, start=1)]
    return lines([*rows, "</doc>", f"</{kind}>", "</mteval>"])


def sgm(texts: list[str], kind: str, language: str) -> bytes:
    """As of WMT: no XML header, some tags in upper case or unquoted, CRLF, ids restart in each document."""
    rows = [
        f'<{kind} setid="newstest" srclang="any"' + (f' trglang="{language}">' if kind == "refset" else ">")
    ]
    for start in range(0, len(texts), 5):
        rows += [f'<doc sysid="ref" docid="doc{start}" genre="news" origlang={language}>', "<hl>"]
        for i, text in enumerate(texts[start : start + 5], start=1):
            rows += [f'<seg id="{i}">{text}</seg>'] + (["</hl>", "<p>"] if i == 1 else [])
        rows += ["</p>", "</doc>"]
    return lines([*rows, f"</{kind}>", ""], newline="\r\n", mark="\ufeff")


def tgz(path: Path, members: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for folder in dict.fromkeys(name.rsplit("/", 1)[0] for name in members if "/" in name):
            entry = tarfile.TarInfo(folder)
            entry.type = tarfile.DIRTYPE
            archive.addfile(entry)
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


# ------------------------------------------------------------------------------ releases


def iwslt17(raw: Path, tests: bool = True) -> None:
    de, en = columns(german(TRAIN, 1) + ODD + EMPTY + [LONG])
    members = {"de-en/README": b"", "de-en/train.tags.de-en.de": train_tags(de)}
    members["de-en/train.tags.de-en.en"] = train_tags(en)
    for i, name in enumerate(["dev2010", *(f"tst201{year}" for year in range(6))]):
        for language, texts in zip(("de", "en"), columns(german(VALID if i == 0 else TEST, 2 + i))):
            data = ted_xml(texts, "srcset" if language == "de" else "refset", language)
            members[f"de-en/IWSLT17.TED.{name}.de-en.{language}.xml"] = data
    tgz(raw / "2017-01-trnted/texts/de/en/de-en.tgz", members)
    for source, other in (("de", "en"), ("en", "de")) if tests else ():
        pair = f"{source}-{other}"
        members = {f"{pair}/README": b""}
        for year in (2016, 2017):
            texts = columns([*german(TEST, year), ("Zu R&D &amp; &quot;mehr&quot;.", "On R&D &amp; more.")])
            data = ted_xml(texts[source == "en"], "srcset", source)
            members[f"{pair}/IWSLT17.TED.tst{year}.{pair}.{source}.xml"] = data
        tgz(raw / f"2017-01-ted-test/texts/{source}/{other}/{pair}.tgz", members)


def iwslt14(raw: Path) -> None:
    members = {}
    for language, texts in zip(("de", "en"), columns(german(TRAIN, 1) + ODD + EMPTY + [LONG, UNLIKE])):
        members[f"de-en/train.tags.de-en.{language}"] = train_tags(texts)
    for i, name in enumerate(["TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"]):
        for language, texts in zip(("de", "en"), columns(german(TEST, 20 + i))):
            kind = "srcset" if language == "de" else "refset"
            members[f"de-en/IWSLT14.{name}.de-en.{language}.xml"] = ted_xml(texts, kind, language)
    tgz(raw / "de-en.tgz", members)


def kftt(raw: Path) -> None:
    members = {}
    numbers = {"train": TRAIN, "train.cln": TRAIN, "tune": 5, "dev": VALID, "test": TEST}
    for i, (split, number) in enumerate(numbers.items()):
        for language, texts in zip(("ja", "en"), columns(japanese(number, 1000 * i))):
            members[f"kftt-data-1.0/data/tok/kyoto-{split}.{language}"] = lines(texts)
            natural = [
                text.replace(" ", "") if language == "ja" else text.replace(" .", ".") for text in texts
            ]
            if split != "train.cln":
                members[f"kftt-data-1.0/data/orig/kyoto-{split}.{language}"] = lines(natural)
    tgz(raw / "kftt-data-1.0.tar.gz", members)


def wmt16(raw: Path) -> None:
    members = {"training-parallel-ep-v8/europarl-v8.fi-en.fi": b"moi\n"}
    for language, texts in zip(("ro", "en"), columns(romanian(TRAIN // 2, 0) + ODD + EMPTY)):
        members[f"training-parallel-ep-v8/europarl-v8.ro-en.{language}"] = lines(texts)
    tgz(raw / "training-parallel-ep-v8.tgz", members)
    with zipfile.ZipFile(raw / "en-ro.txt.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("README", "SETIMES")
        for language, texts in zip(("ro", "en"), columns([*romanian(TRAIN - TRAIN // 2, 500), LONG, UNLIKE])):
            data = lines(texts, newline="\r\n", mark="\ufeff", trailing=language == "ro")
            archive.writestr(f"SETIMES.en-ro.{language}", data)
    for archive, name, number in (("dev", "dev/newsdev2016", VALID), ("test", "test/newstest2016", TEST)):
        ro, en = columns(romanian(number, 1000 if archive == "dev" else 2000))
        pair = {
            f"{name}-roen-src.ro.sgm": sgm(ro, "srcset", "ro"),
            f"{name}-roen-ref.en.sgm": sgm(en, "refset", "en"),
        }
        tgz(raw / f"{archive}.tgz", pair)


def wmt14(raw: Path) -> None:
    thirds = [german(TRAIN, 1)[start::3] for start in range(3)]
    parts = {
        "europarl-v7": ("training/", ODD),
        "commoncrawl": ("", EMPTY),
        "nc-v9": ("training/", [LONG, UNLIKE]),
    }
    for third, (part, (folder, more)) in zip(thirds, parts.items()):
        members = {}
        for language, texts in zip(("de", "en"), columns(third + more)):
            name = part.replace("nc-", "news-commentary-")
            members[f"{folder}{name}.de-en.{language}"] = lines(texts)
        tgz(raw / f"training-parallel-{part}.tgz", members)
    de, en = columns(german(VALID, 2))
    members = {"dev/newstest2013-src.en.sgm": sgm(en, "srcset", "en")}
    members["dev/newstest2013-ref.de.sgm"] = sgm(de, "refset", "de")
    tgz(raw / "dev.tgz", members)
    de, en = columns([*german(TEST, 3), ("R&D &amp; „mehr“", "R&D &amp; “more”")])
    members = {"test-full/newstest2014-deen-src.en.sgm": sgm(en, "srcset", "en")}
    members["test-full/newstest2014-deen-ref.de.sgm"] = sgm(de, "refset", "de")
    tgz(raw / "test-full.tgz", members)


RELEASES = {
    "iwslt17-de-en": iwslt17,
    "iwslt14-de-en": iwslt14,
    "kftt-ja-en": kftt,
    "wmt16-ro-en": wmt16,
    "wmt14-en-de": wmt14,
}


def vocabulary_size(name: str) -> int:
    """A vocabulary size that the miniature can fill."""
    return VOCABULARY.get(name, 300)
