"""What an update costs with a latent alignment, by positions per target word, relative to the plain model.

    OMP_NUM_THREADS=1 python -m experiments.latent.alignment_cost

Tiny models with 6000 words, batches of random tokens. The scores of the alignment are scaled so that its
support has several sizes. Prints and records processor time per update, the median over batches; the models
take turns.
"""

from __future__ import annotations

import statistics
import time
from types import SimpleNamespace

import torch

from user_dir.command_line import file_path, positive, run_command
from user_dir.io import write_json

from ._runs import RECORDS, new_parser

WORDS = 6000
LATENT = "--latent-alignment --latent-alignment-top-k 8 --decoder-context-fixed-alpha 1.5"
# A learned α falls so far that all of the best positions have a weight.
DENSE = "--latent-alignment --decoder-context-fixed-alpha 1.01"
# name → flags, factor of the alignment's query projection
MODELS = {
    "plain": ("--decoder-context-fixed-alpha 1.5", None),
    "soft": (f"{LATENT} --latent-alignment-soft", 1),
    "latent, default top k": (DENSE, 1),
    **{f"latent, scores × {factor}": (LATENT, factor) for factor in (60, 20, 10, 6, 3, 1)},
}


def parse_args(argv=None):
    """Read the command line."""
    parser = new_parser(__doc__)
    add = parser.add_argument
    add("--batches", type=positive, default=12, metavar="N", help="updates of each model (default: 12)")
    add("--max-tokens", type=positive, default=2048, metavar="N", help="tokens per batch (default: 2048)")
    default = RECORDS / "alignment_cost.json"
    add("--output", type=file_path, default=default, metavar="FILE", help=f"record (default: {default.name})")
    return parser.parse_args(argv)


def built(flags: str, factor: float | None, dictionary):
    """A tiny model in training mode, and its optimiser."""
    from fairseq import options
    from fairseq.models import ARCH_MODEL_REGISTRY

    arch = "adaptively_sparse_transformer_tiny"
    given = ["no-data", "--arch", arch, "--share-all-embeddings", "--dropout", "0.1", *flags.split()]
    args = options.parse_args_and_arch(options.get_training_parser(), input_args=given)
    torch.manual_seed(1)
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    model = ARCH_MODEL_REGISTRY[arch].build_model(args, task).train()
    if factor is not None:
        with torch.no_grad():
            model.alignment.q_proj.weight *= factor
    return model, torch.optim.Adam(model.parameters(), lr=1e-6)


def update(model, optimiser, sample: dict) -> float:
    """Milliseconds of processor time of an update with label smoothing."""
    begin = time.process_time()
    output = model(sample["source"], sample["lengths"], sample["previous"])
    log_p = model.get_normalized_probs(output, log_probs=True).flatten(0, 1)
    target = sample["target"].flatten()
    real = target != model.encoder.padding_idx
    chosen = log_p.gather(1, target.unsqueeze(1)).squeeze(1)
    loss = -(0.9 * chosen + 0.1 * log_p.mean(1))[real].mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return 1e3 * (time.process_time() - begin)


def main(argv=None) -> None:
    """Measure, print and record."""
    args = parse_args(argv)
    torch.set_num_threads(1)

    from fairseq.data import Dictionary

    import user_dir.models  # noqa: F401  registers the architecture
    from user_dir.benchmarks.machine import record
    from user_dir.benchmarks.random_tokens import batches

    dictionary = Dictionary()
    for number in range(WORDS):
        dictionary.add_symbol(f"w{number}")
    models = {name: built(*how, dictionary) for name, how in MODELS.items()}
    samples = batches(args.batches + 1, args.max_tokens, dictionary, seed=1)
    times, positions = {name: [] for name in models}, {name: [] for name in models}
    for number, sample in enumerate(samples):
        for name, (model, optimiser) in models.items():
            milliseconds = update(model, optimiser, sample)
            if number:  # the first update allocates memory
                times[name].append(milliseconds)
                if model.alignment is not None:
                    positions[name].append(model.alignment.support.item())
    plain = statistics.median(times["plain"])
    rows = []
    for name in models:
        middle = statistics.median(times[name])
        row = {"model": name, "milliseconds": middle, "to_plain": middle / plain}
        if positions[name]:
            row["positions"] = statistics.mean(positions[name])
        rows.append(row)
        print(row)
    made = record("alignment_cost", torch.device("cpu"), seed=1)
    settings = {"words": WORDS, "max_tokens": args.max_tokens, "batches": args.batches}
    settings |= {"machine": made["machine"], "versions": made["versions"]}
    write_json(args.output, {**settings, "rows": rows})


if __name__ == "__main__":
    run_command(main)
