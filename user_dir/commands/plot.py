r"""Draw figures for papers: of heads, of α over training, or of attention on sentences.

What is drawn follows from the files that are given:

  plot.py A.heads.json B.heads.json --name softmax --name α-entmax

Statistics of heads.py, of one or several models: histograms of α and of density, sorted densities by layer,
and the diversity of heads; with --alpha-log, for each model, also α over training.

  plot.py checkpoints/toy/alpha_entmax/alpha.jsonl

An α log, which training writes with --alpha-log: α of every head; prints the final values by layer and head.

  plot.py A.attention B.attention --sentence 7 --head encoder_self:0:2,encoder_self:1:3 --output maps.pdf

Attention maps that heads.py --dump-attention writes, and the number of a sentence: heat maps of chosen heads,
models side by side. Weights of exactly zero are left empty; titles show α of the head.
"""

from __future__ import annotations

import argparse
import itertools
import re
from pathlib import Path

from .options import Parser


def heads(text: str) -> list[tuple[str, int, int]]:
    """``TYPE:LAYER:HEAD``, or several of them, separated by commas."""
    matches = [re.fullmatch(r"(\w+):(\d+):(\d+)", head) for head in text.split(",")]
    if not all(matches):
        raise argparse.ArgumentTypeError(f"{text} is not TYPE:LAYER:HEAD, as encoder_self:0:2 is")
    return [(match[1], int(match[2]), int(match[3])) for match in matches]


def main(argv=None) -> None:
    """Read the command line, draw, write."""
    parser = Parser(__doc__)
    what = "statistics or folders of attention maps of models; or an α log"
    parser.add("files", Path, what, nargs="+")
    what = "name of each model, in the same order (default: its folder and file)"
    parser.add("--name", str, what, action="append", metavar="NAME")
    what = "with statistics: α log of each model, in the same order"
    parser.add("--alpha-log", Path, what, action="append")
    what = "number of a sentence in folders of maps, from 0; may be repeated"
    parser.add("--sentence", int, what, action="append")
    what = "head whose map to draw, or one per model, separated by commas, counting from 0; may be repeated"
    parser.add("--head", heads, what, action="append", metavar="TYPE:LAYER:HEAD")
    what = "of statistics: folder (default: figures beside them); else figure (default: NAME.svg beside FILE)"
    parser.add("--output", Path, what)
    what = "format of figures without --output FILE (default: svg)"
    parser.add("--format", str, what, choices=("svg", "pdf", "png"), default="svg", metavar=None)
    args = parser.parse_args(argv)
    first = args.files[0]
    if ".jsonl" in first.suffixes:
        if len(args.files) > 1:
            parser.error("give one α log, or statistics with --alpha-log for each")
        plot_alphas(first, args.output or first.with_suffix(f".{args.format}"))
    elif first.is_dir():
        if not args.sentence or not args.head:
            parser.error("give --sentence and --head of the maps to draw")
        if any(len(chosen) not in (1, len(args.files)) for chosen in args.head):
            parser.error(f"--head: give one head for all models, or one for each of {len(args.files)}")
        plot_maps(args, args.output or first.with_name(f"{first.name}.{args.format}"))
    else:
        if len(args.alpha_log or args.files) != len(args.files):
            parser.error(f"{len(args.alpha_log)} --alpha-log for {len(args.files)} models; give one for each")
        plot_heads(args, args.output or first.parent / "figures")


def plot_heads(args: argparse.Namespace, folder: Path) -> None:
    """Draw statistics of models, and write each figure to a folder."""
    from ..analysis.plots import figures, save
    from ..analysis.results import check_models, model_names, read_model

    logs = args.alpha_log or [None] * len(args.files)
    models = list(map(read_model, model_names(args.files, args.name), args.files, logs))
    check_models(models)
    for name, figure in figures(models).items():
        path = folder / f"{name}.{args.format}"
        save(figure, path)
        print(path)


def plot_alphas(log: Path, output: Path) -> None:
    """Draw an α log, and print its last values."""
    from ..analysis.plots import alpha_trajectories, save
    from ..analysis.results import alpha_table
    from ..analysis.trajectories import read_trajectories

    trajectories = read_trajectories(log)
    save(alpha_trajectories(trajectories), output)
    print(alpha_table(trajectories))
    print(f"α at {len(trajectories.updates):,} of {trajectories.updates[-1]:,} updates: {output}")


def plot_maps(args: argparse.Namespace, output: Path) -> None:
    """Draw the attention of heads of models on sentences, and write the figure."""
    from ..analysis.maps import read_map
    from ..analysis.plots import head_maps, save
    from ..analysis.results import check_same_split, model_names

    names, panels = model_names(args.files, args.name), []
    models = [[read_map(path / f"{number}.npz") for number in args.sentence] for path in args.files]
    check_same_split({name: (maps[0].corpus, maps[0].subset) for name, maps in zip(names, models)})
    for sentences, chosen in itertools.product(zip(*models), args.head):
        for name, maps, head in zip(names, sentences, itertools.cycle(chosen)):
            panels.append((maps, head, name if len(models) > 1 else ""))
    save(head_maps(panels, len(models) if len(models) > 1 else min(len(args.head), 4)), output)
    print(f"{len(panels)} maps: {output}")
