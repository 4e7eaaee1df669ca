#!/usr/bin/env python3
"""Heat maps of attention: chosen sentences and heads, of one model or several side by side.

From the maps that head_stats.py --dump-attention wrote. Where a weight is exactly zero, nothing is drawn.
For instance a head of each of two models, on sentence 7:
plot_attention.py a.npz b.npz --sentence 7 --head encoder_self:0:2,encoder_self:1:3 --output maps.pdf
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def heads(text: str) -> list[tuple[str, int, int]]:
    """``TYPE:LAYER:HEAD``, or several of them, parted by commas."""
    found = [re.fullmatch(r"(\w+):(\d+):(\d+)", part) for part in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text} is not TYPE:LAYER:HEAD, as encoder_self:0:2 is")
    return [(match.group(1), int(match.group(2)), int(match.group(3))) for match in found]


def main(argv=None) -> None:
    """Read the command line, draw, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("maps", type=Path, nargs="+", metavar="MAPS.npz", help="one file for each model")
    parser.add_argument("--sentence", type=int, action="append", help="its number, from 0; may be repeated")
    parser.add_argument(
        "--head",
        type=heads,
        action="append",
        required=True,
        metavar="TYPE:LAYER:HEAD",
        help="of every model, or one for each, parted by commas; may be repeated; layers and heads from 0",
    )
    parser.add_argument("--name", action="append", help="of each model, in their order (default: its path)")
    parser.add_argument("--output", type=Path, required=True, help="figure to write: .svg, .pdf or .png")
    args = parser.parse_args(argv)
    for chosen in args.head:
        if len(chosen) not in (1, len(args.maps)):
            parser.error(
                f"--head names {len(chosen)} heads for {len(args.maps)} models; give one, or one each"
            )

    from user_dir.analysis.maps import Maps
    from user_dir.analysis.plots import save
    from user_dir.analysis.plots_maps import head_maps
    from user_dir.analysis.sources import model_names
    from user_dir.attention_types import TITLES

    names = model_names(args.maps, args.name)
    models = [Maps(path) for path in args.maps]
    panels = []
    for number in args.sentence or [0]:
        sentences = [maps[number] for maps in models]
        for chosen in args.head:
            for index, sentence in enumerate(sentences):
                attention_type, layer, head = chosen[index % len(chosen)]
                title = f"{TITLES.get(attention_type)}\nlayer {layer}, head {head}"
                if len(models) > 1:
                    title = f"{names[index]}\n{title}"
                weights = sentence.head(attention_type, layer, head)
                panels.append(
                    (title, weights, sentence.queries(attention_type), sentence.keys(attention_type))
                )
    columns = len(models) if len(models) > 1 else min(len(args.head), 4)
    save(head_maps(panels, columns), args.output)
    print(f"{len(panels)} maps: {args.output}")


if __name__ == "__main__":
    main()
