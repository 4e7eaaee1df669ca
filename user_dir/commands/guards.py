"""List the guards: everything that the plugin changes in fairseq, why, and until when.

Those that change what fairseq computes print a line when they act on an architecture of fairseq's own. Any
can be left out: with --without-guard NAME of the other commands, for fairseq's commands by the environment:

    ADAPTIVELY_SPARSE_WITHOUT_GUARDS=last-batches,moving-average fairseq-train …
"""

from __future__ import annotations

import argparse

from ..guards import GUARDS, Kind


def main(argv=None) -> None:
    """Print a table for each kind."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args(argv)

    from ..tables import markdown

    for kind in Kind:
        rows = [
            (guard.name, *(text.replace("``", "`") for text in guard.reasons()), guard.where)
            for guard in GUARDS
            if guard.kind is kind
        ]
        print(f"**{kind.value}**\n")
        print(markdown(rows, ("guard", "what is wrong", "unnecessary", "where")), end="\n\n")
