#!/usr/bin/env python3
"""Gold alignments of nouns and adjectives of the toy corpus, from the lexicon of its grammar.

    python scripts/prepare.py toy
    python experiments/latent/toy_gold.py --subset test --output gold.pharaoh
    python scripts/align.py --path CHECKPOINT --corpus toy --subset test --gold gold.pharaoh

A link is sure if its noun or adjective occurs once on either side. All links of other target words are
possible: whatever an alignment says of them is counted as right.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from _runs import ROOT, new_parser

from user_dir.command_line import file_path, path_of, plain_name, run_command
from user_dir.corpora.toy_lexicon import COMPOUND_NOUNS, QUALITIES, SIMPLE_NOUNS, SIZES
from user_dir.errors import UserError
from user_dir.io import read_text, write_text

_ENDINGS = ("", "e", "en", "em", "er", "es")


def parse_args(argv=None):
    """Read the command line."""
    parser = new_parser(__doc__)
    add = parser.add_argument
    add("--subset", type=plain_name, default="test", metavar="NAME", help="split (default: test)")
    data = ROOT / "data"
    add("--data", type=path_of, default=data, metavar="DIR", help="folder of the corpora (default: data)")
    add("--output", type=file_path, required=True, metavar="FILE", help="Pharaoh file to write")
    return parser.parse_args(argv)


def lexicon() -> dict[tuple[str, ...], set[str]]:
    """English words of a noun or an adjective → the forms of its German translations, in lower case."""
    found = defaultdict(set)
    for noun in (*SIMPLE_NOUNS, *COMPOUND_NOUNS):
        german = {noun.nominative, noun.genitive, noun.plural, noun.dative_plural}
        for english in (noun.english, noun.english_plural):
            found[tuple(english.lower().split())] |= {each.lower() for each in german}
    for adjective in (*SIZES, *QUALITIES):
        found[tuple(adjective.english.split())] |= {adjective.stem.lower() + ending for ending in _ENDINGS}
    return dict(found)


def gold_links(german: str, english: str, words: dict[tuple[str, ...], set[str]]) -> str:
    """The gold links of a sentence pair in Pharaoh format, words counted from 0."""
    source, target = ([word.strip(",.?").lower() for word in side.split()] for side in (german, english))
    longest = max(map(len, words))
    matches, position = [], 0
    while position < len(target):
        here = range(min(longest, len(target) - position), 0, -1)
        length = next((n for n in here if tuple(target[position : position + n]) in words), 0)
        if length:
            forms = words[tuple(target[position : position + length])]
            matches.append(
                (range(position, position + length), [i for i, w in enumerate(source) if w in forms])
            )
        position += max(length, 1)
    uses = [tuple(places) for _, places in matches]
    sure = {
        (places[0], j)
        for span, places in matches
        if len(places) == 1 and uses.count(tuple(places)) == 1
        for j in span
    }
    open_words = set(range(len(target))) - {j for _, j in sure}
    links = [(j, i, "-") for i, j in sure] + [(j, i, "?") for j in open_words for i in range(len(source))]
    return " ".join(f"{i}{kind}{j}" for j, i, kind in sorted(links))


def main(argv=None) -> None:
    """Read the text, write the links, print how many words have a sure one."""
    args = parse_args(argv)
    folder = args.data / "toy" / "text"
    german, english = (
        read_text(folder / f"{args.subset}.{language}", "the text").splitlines() for language in ("de", "en")
    )
    if len(german) != len(english):
        raise UserError(f"{folder}: {args.subset} has {len(german)} German and {len(english)} English lines")
    words = lexicon()
    lines = [gold_links(*pair, words) for pair in zip(german, english)]
    write_text(args.output, "".join(line + "\n" for line in lines))
    sure = sum(line.count("-") for line in lines)
    total = sum(len(line.split()) for line in english)
    print(f"{args.output}: {len(lines)} sentences, {sure} of {total} target words have a sure link")


if __name__ == "__main__":
    run_command(main)
