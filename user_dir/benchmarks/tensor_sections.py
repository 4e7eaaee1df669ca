"""What ``scripts/benchmark.py`` measures on random tensors; a section imports no other's peers."""

from __future__ import annotations

import argparse

import torch

from .machine import finish_part


def attention(args: argparse.Namespace, device, report: dict) -> None:
    """Time and memory of our attention beside PyTorch's."""
    from .against_sdpa import SENTENCES, aims, compare, sdpa_table
    from .attention import verdict_table

    lengths = args.lengths or ([32, 512] if args.quick else list(SENTENCES))
    rounds = args.rounds or (3 if args.quick else 11)
    report.update(rounds=rounds, rows=[])
    print(
        "8 heads of 64 dimensions, float32; training: forward and backward, with the gradient of α learned\n"
    )
    for length in lengths:
        sentences = SENTENCES.get(length, max(1, 2048 // length))
        report["rows"] += compare(length, sentences, rounds, args.seed, torch.float32)
    report["aims"] = aims(report["rows"])
    finish_part(args.output, report, sdpa_table(report["rows"]) + "\n\n" + verdict_table(report["aims"]))
    if args.figure:
        from ..analysis.plots import save
        from .figure import time_by_length

        save(time_by_length(report["rows"]), args.figure)
        print(args.figure)


def kernels(args: argparse.Namespace, device, report: dict) -> None:
    """Time, memory and accuracy of the normalizers."""
    from .accuracy import accuracy, accuracy_tables
    from .contenders import contenders
    from .kernels import SHAPES, VARIANCES, kernel_tables, require_memory, time_kernels

    shapes = args.shapes or (SHAPES[:1] if args.quick else SHAPES)
    rounds = args.rounds or (3 if args.quick else 11)
    for size in shapes:
        require_memory(size, device)
    found, left_out = contenders(device)
    report.update(rounds=rounds, left_out=left_out, timings=[], accuracy=[])
    for name, reason in left_out.items():
        print(f"left out: {name}: {reason}\n")
    print("×softmax, ×peer: time as a multiple of softmax's, and of what it replaces: entmax_bisect with 50")
    print("steps, entmax15, sparsemax; per head: α from 1.05 to 1.95 over the heads\n")
    for variance in VARIANCES:
        report["accuracy"] += accuracy(found, variance, args.seed, device)
    finish_part(args.output, report, accuracy_tables(report["accuracy"]))
    for size in shapes:
        for variance in VARIANCES:
            rows = time_kernels(found, size, variance, rounds, args.seed, device)
            report["timings"] += rows
            finish_part(args.output, report, kernel_tables(rows))


def loss(args: argparse.Namespace, device, report: dict) -> None:
    """Time and memory of losses of an output layer."""
    from .loss_speed import SYMBOLS, VARIANCES, loss_contenders, loss_tables, time_losses

    rounds = args.rounds or (3 if args.quick else 11)
    report.update(rounds=rounds, timings=[])
    print("forward and backward, without reduction; ×: time as a multiple of the other's\n")
    for symbols in args.symbols or (SYMBOLS[:1] if args.quick else SYMBOLS):
        for variance in VARIANCES:
            rows = time_losses(loss_contenders(), symbols, variance, rounds, args.seed, device)
            report["timings"] += rows
            finish_part(args.output, report, loss_tables(rows))


def products(args: argparse.Namespace, device, report: dict) -> None:
    """Time of products with weights."""
    from .products import ROWS, SHAPES, product_table, time_products

    rounds = args.rounds or (3 if args.quick else 11)
    report.update(rounds=rounds, timings=[])
    print("×: time of what is to the left, ours, as a multiple of the other's\n")
    for shape in SHAPES[:1] if args.quick else SHAPES:
        counts = (1, 5, 64) if args.quick else ROWS
        rows = [time_products(*shape, count, rounds, args.seed) for count in counts]
        report["timings"] += rows
        finish_part(args.output, report, product_table(rows))
