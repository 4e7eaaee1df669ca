"""A tiny triplet corpus: its description, its raw files and the vocabulary of a tiny BERT."""

from __future__ import annotations

from pathlib import Path

SRC = ["The dog sleeps .", "The cat sees the dog .", "Where is the house ?", "Today the child sings ."]
MT = ["Der Hund schlafen .", "Die Katze sieht der Hund .", "Wo ist das Haus ?", "Heute die Kind singt ."]
PE = ["Der Hund schläft .", "Die Katze sieht den Hund .", "Wo ist das Haus ?", "Heute singt das Kind ."]
SIDES = {"src": SRC, "mt": MT, "pe": PE}
DESCRIPTION = """\
title: tiny triplets
origin: triplets
languages: [en, de]
splits: {train: "train.{side}", valid: "dev.{side}", exam: "exam.{side}"}
"""
SPECIAL = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def write_triplets(raw: Path, repeat: int = 10) -> None:
    raw.mkdir(parents=True, exist_ok=True)
    for side, lines in SIDES.items():
        (raw / f"train.{side}").write_text("".join(f"{line}\n" for line in lines * repeat))
        for subset in ("dev", "exam"):
            (raw / f"{subset}.{side}").write_text("".join(f"{line}\n" for line in lines))


def bert_vocabulary() -> list[str]:
    """Whole words of the source, and the letters of everything."""
    words = sorted({word for line in SRC for word in line.split()})
    letters = sorted({letter for line in (*SRC, *MT, *PE) for letter in line if letter != " "})
    return [
        *SPECIAL,
        *words,
        *(letter for letter in letters if letter not in words),
        *(f"##{letter}" for letter in letters),
    ]
