#!/usr/bin/env python3
"""A BERT made sparse: the dial against constant and learned α, loss beside keys per query.

    pip install accelerate    # which transformers' Trainer needs
    python scripts/prepare.py tatoeba-de-en
    python experiments/keys_per_query.py

The plan, made before the first run. MiniLM (docs/post-editing.md says where it comes from) becomes a masked
language model of Tatoeba's English: 1,000 updates of 32 sentences with softmax, learning rate 5e-4, 30 % of
the pieces masked. From there each system goes on for 400 updates at 1e-4 with three seeds; a seed draws the
same sentences and masks for all systems. Then loss (nats per masked piece) and keys per query (mean over
heads) are measured on the validation set, with the same masks for all. The dial may exceed the dense loss by
5 %, to reach its target; the question is whether its loss is lower than with a constant or learned α and as
many keys. A run that is in experiments/records/keys_per_query.json is not made again.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForMaskedLM, AutoTokenizer, Trainer, TrainingArguments

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from user_dir.files import markdown, mean_and_deviation, read_json, read_text, write_json  # noqa: E402
from user_dir.hugging_face import KeysPerQuery, head_statistics, sparsify  # noqa: E402

DENSE = ROOT / "runs" / "keys_per_query"
RECORD = ROOT / "experiments" / "records" / "keys_per_query.json"
SYSTEMS = {  # α for sparsify, and the dial's target
    "softmax": (1.0, None),
    "α learned": (None, None),
    "α = 1.5": (1.5, None),
    "sparsemax": (2.0, None),
    "dial, 3 keys": (None, 3.0),
    "dial, 2 keys": (None, 2.0),
}
SEEDS = 1, 2, 3


def masking(tokenizer, seed: int):
    """A collator that makes batches of masked examples."""
    return transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.3, seed=seed)


def train(model, tokenizer, examples, seed, updates, rate, callbacks=()) -> None:
    """Train on batches of 32 sentences."""
    arguments = TrainingArguments(
        output_dir=str(DENSE),
        max_steps=updates,
        per_device_train_batch_size=32,
        seed=seed,
        learning_rate=rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=updates // 10,
        logging_steps=10,
        save_strategy="no",
        use_cpu=True,
    )
    Trainer(model, arguments, masking(tokenizer, seed), examples, callbacks=[*callbacks]).train()


@torch.no_grad()
def evaluate(model, tokenizer, examples) -> dict:
    """Loss, keys per query and α over the validation set."""
    collator = masking(tokenizer, 1)
    batches = [collator(examples[first : first + 50]) for first in range(0, len(examples), 50)]
    losses = [model.eval()(**batch).loss.item() for batch in batches]
    heads = head_statistics(model, batches)["heads"]
    measures = {name: [row[name] for row in heads] for name in ("keys_per_query", "alpha")}
    return {"loss": statistics.fmean(losses), **measures}


def main() -> None:
    """Train what is missing, and print the table."""
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "checkpoints" / "minilm")
    examples = {}
    for split in ("train", "valid"):
        lines = read_text(ROOT / "data" / "tatoeba-de-en" / "text" / f"{split}.en").splitlines()
        ids = tokenizer(lines, truncation=True, max_length=64)["input_ids"]
        examples[split] = [{"input_ids": sentence} for sentence in ids]
    if not (DENSE / "model.safetensors").is_file():
        torch.manual_seed(1)
        model = AutoModelForMaskedLM.from_pretrained(ROOT / "checkpoints" / "minilm")
        train(model, tokenizer, examples["train"], 1, 1000, 5e-4)
        model.save_pretrained(DENSE)
    record = read_json(RECORD) if RECORD.is_file() else {}
    for seed in SEEDS:
        for name, (alpha, target) in SYSTEMS.items():
            runs = record.setdefault(name, {})
            if str(seed) not in runs:
                model = sparsify(AutoModelForMaskedLM.from_pretrained(DENSE), alpha)
                dial = [KeysPerQuery(target, max_loss=0.05)] if target else []
                train(model, tokenizer, examples["train"], seed, 400, 1e-4, dial)
                runs[str(seed)] = evaluate(model, tokenizer, examples["valid"])
                write_json(RECORD, record)
                print(f"{name}, seed {seed}: loss {runs[str(seed)]['loss']:.3f}", flush=True)
    rows = []
    for name, runs in record.items():
        losses = [run["loss"] for run in runs.values()]
        keys, alphas = ([run[what] for run in runs.values()] for what in ("keys_per_query", "alpha"))
        between = [f"{min(map(min, values)):.2f}–{max(map(max, values)):.2f}" for values in (keys, alphas)]
        rows.append([name, len(runs), mean_and_deviation(losses, ".3f")])
        rows[-1] += [mean_and_deviation(map(statistics.fmean, keys), ".2f"), *between]
    print(markdown(rows, ["system", "seeds", "loss", "keys per query", "of heads", "α of heads"]))


if __name__ == "__main__":
    main()
