"""The paper's setting, one system a call: a base model trained, scored and analysed within nine minutes."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import yaml

from ..analysis.head_tables import alpha_and_density, by_attention
from ..checkout import ROOT
from ..checkpoints import for_inference, load_checkpoint, save_checkpoint
from ..eight_bits import packed, rounded
from ..errors import UserError
from ..io import parse_json, read_text, write_text
from ..packed_folders import there
from ..tables import markdown
from .gpu_job import Job

PLAN = ROOT / "experiments" / "paper.yaml"
WEIGHTS = ROOT / "checkpoints" / "paper"  # where the plan's second runs find those of the first
LARGEST = 16_000_000  # bytes of a file
LIMIT = 545  # seconds of a run, of which the plan gives training 378
MINIATURE = [
    *("model.encoder_layers=1", "model.decoder_layers=1", "model.encoder_embed_dim=16"),
    *("model.decoder_embed_dim=16", "model.encoder_ffn_embed_dim=16", "model.alpha_log_interval=1"),
    *("lr_scheduler.warmup_steps=2", "lr_scheduler.hold_steps=2", "lr_scheduler.decay_steps=5"),
    *("optimization.max_update=9", "dataset.max_tokens=20000", "dataset.num_workers=0"),
    *("common.bf16=false", "common.log_interval=1"),
]


def paper(job: Job) -> None:
    """Make the first run of a system that is not there yet; its folder is all that the next call needs."""
    if job.seed != 1:
        raise UserError(f"--seed {job.seed}: {PLAN.name} has seed 1 alone")
    folder, runs = job.output.parent, (job.system, f"{job.system}_2")
    left = [name for name in runs if not there(_record(folder, name, "result.json"))]
    if not left:
        raise UserError(f"both runs of {job.system} are in {folder / 'paper.tar.xz'}; name another --output")
    name = left[0]
    with tempfile.TemporaryDirectory() as scratch:
        weights = Path(scratch) if job.rehearse else WEIGHTS
        plan = miniature(job, Path(scratch)) if job.rehearse else PLAN
        if name != job.system:
            join(folder, job.system, weights / f"{job.system}.pt")
        average = Path(scratch) / "paper" / f"{name}-seed1" / "average.pt"
        places = ["--folder", scratch, "--records", folder, "--only", f"{name}-seed1"]
        try:
            job.run("scripts/experiment.py", plan, *places, show=True, limit=job.least(None, LIMIT))
        finally:  # what was trained comes back, whatever follows
            if average.is_file():
                split(in_eight_bits(average), folder, name)
                for part in list(folder.glob(f"{job.system}.int8.*")) if name != job.system else ():
                    part.unlink()
    found = parse_json(read_text(_record(folder, name, "result.json"), "the result"))
    settings = parse_json(read_text(_record(folder, name, "settings.json"), "the settings"))
    updates, planned = found["training"]["updates"], settings["config"]["optimization"]["max_update"]
    heads = parse_json(read_text(_record(folder, name, "average.heads.json"), "the statistics"))["heads"]
    cut = "" if updates == planned else f", cut short: {planned:,} were planned"
    figures = {"updates": updates, "planned": planned, "layers": layers(heads)}
    job.done(name, figures, f"{name}: {updates:,} updates{cut}\n\n{layer_table(figures['layers'])}")


def _record(folder: Path, name: str, file: str) -> Path:
    return folder / "paper" / f"{name}-seed1" / file


def layers(heads: list[dict]) -> list[dict]:
    """Mean α and density of each layer."""
    groups = {
        (kind, layer): [row for row in mine if row["layer"] == layer]
        for kind, mine in by_attention(heads).items()
        for layer in sorted({row["layer"] for row in mine})
    }
    return [
        {"attention": kind, "layer": layer, **alpha_and_density(rows)}
        for (kind, layer), rows in groups.items()
    ]


def layer_table(rows: list[dict]) -> str:
    """The same as a table."""
    rows = [
        [row["attention"], row["layer"], f"{row['alpha_mean']:.3f}", f"{row['density_mean']:.3f}"]
        for row in rows
    ]
    return markdown(rows, ["attention", "layer", "α", "density"])


def in_eight_bits(checkpoint: Path) -> bytes:
    """A checkpoint with the same weights, rounded to 8 bits."""
    state = load_checkpoint(checkpoint)
    state = for_inference({**state, "model": rounded(state["model"])})
    target = checkpoint.with_suffix(".int8.pt")
    save_checkpoint(packed(state), target)
    return target.read_bytes()


def split(content: bytes, folder: Path, name: str) -> None:
    """Write files ``NAME.int8.N-of-M`` that are not too large."""
    count = -(-len(content) // LARGEST)
    for number in range(count):
        part = content[number * LARGEST : (number + 1) * LARGEST]
        (folder / f"{name}.int8.{number + 1}-of-{count}").write_bytes(part)


def join(folder: Path, name: str, target: Path) -> None:
    """Put the files of :func:`split` together; raises UserError if one is missing."""
    count = max(
        (int(part.name.rpartition("-")[2]) for part in folder.glob(f"{name}.int8.*-of-[1-9]")), default=1
    )
    parts = [folder / f"{name}.int8.{number}-of-{count}" for number in range(1, count + 1)]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise UserError(f"{folder} lacks {', '.join(missing)}, from which {name} goes on; put it back")
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as whole:
        whole.writelines(part.read_bytes() for part in parts)


def miniature(job: Job, scratch: Path) -> Path:
    """The same plan for the smallest models, on the corpus of the rehearsal."""
    plan = yaml.safe_load(PLAN.read_text(encoding="utf-8"))
    plan["average"] = plan["beam"] = 1
    plan["overrides"] = [*MINIATURE, f"task.data={job.prepared().bin}"]
    for run in plan["runs"]:
        places = (each.replace("checkpoints/paper", str(scratch)) for each in run.get("overrides", ()))
        run["overrides"] = list(places)
    write_text(scratch / PLAN.name, json.dumps(plan))  # which is YAML
    return scratch / PLAN.name
