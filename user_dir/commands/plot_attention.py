"""Draw heat maps of attention: chosen sentences and heads of one model, or of several side by side.

Reads the attention maps that head_stats.py --dump-attention writes. Weights of exactly zero are left empty;
titles show α of the head. Example: one head of each of two models, on sentence 7:

    plot_attention.py A B --sentence 7 --head encoder_self:0:2,encoder_self:1:3 --output maps.pdf
"""

from __future__ import annotations

import argparse
import itertools
import re

from .options import (
    add_name_option,
    file_path,
    new_parser,
    option_adder,
    path_of,
    whole_number,
)


def heads(text: str) -> list[tuple[str, int, int]]:
    """``TYPE:LAYER:HEAD``, or several of them, separated by commas."""
    matches = [re.fullmatch(r"(\w+):(\d+):(\d+)", head) for head in text.split(",")]
    if not all(matches):
        raise argparse.ArgumentTypeError(f"{text} is not TYPE:LAYER:HEAD, as encoder_self:0:2 is")
    return [(match[1], int(match[2]), int(match[3])) for match in matches]


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = new_parser(__doc__)
    add = option_adder(parser)
    add("maps", path_of, "folder of the attention maps of each model", nargs="+", metavar="MAPS")
    what = "number of the sentence, counting from 0; may be repeated (default: 0)"
    add("--sentence", whole_number, what, action="append")
    what = "head to draw: one for all models, or one per model, separated by commas"
    more = {"action": "append", "required": True, "metavar": "TYPE:LAYER:HEAD"}
    add("--head", heads, f"{what}; layers and heads count from 0; may be repeated", **more)
    add_name_option(parser)
    add("--output", file_path, "figure: .svg, .pdf or .png (default: MAPS.svg beside the first folder)")
    args = parser.parse_args(argv)
    for chosen in args.head:
        if len(chosen) not in (1, len(args.maps)):
            parser.error(
                f"--head names {len(chosen)} heads for {len(args.maps)} models; give one, or one each"
            )
    return args


def main(argv=None) -> None:
    """Read the command line, draw, write."""
    args = parse_args(argv)

    from ..analysis.maps import Maps
    from ..analysis.plots import head_maps, panel, save
    from ..analysis.results import check_same_split, model_names

    output = args.output or args.maps[0].with_name(f"{args.maps[0].name}.svg")
    names = model_names(args.maps, args.name)
    models, panels = list(map(Maps, args.maps)), []
    check_same_split((maps.folder, maps[0].corpus, maps[0].subset) for maps in models)
    for number, chosen in itertools.product(args.sentence or [0], args.head):
        for name, maps, head in zip(names, models, itertools.cycle(chosen)):
            panels.append(panel(maps[number], head, name if len(models) > 1 else ""))
    columns = len(models) if len(models) > 1 else min(len(args.head), 4)
    save(head_maps(panels, columns), output)
    print(f"{len(panels)} maps: {output}")
