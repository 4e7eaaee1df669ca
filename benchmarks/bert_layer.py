#!/usr/bin/env python3
"""Time of a layer of BERT in transformers, with α learned per head, beside the same layer with softmax.

    python benchmarks/bert_layer.py --threads 1

The layer is BERT-base's: 12 heads of 64 dimensions, feed-forward 3,072. Queries and keys are scaled to
N(0, 1.5²), as in attention.py; α is from 1.05 to 1.95 over the heads. *training*: forward and backward with
gradients of all parameters and BERT's dropout of 0.1, slow in SDPA. Multiples are medians over rounds.
"""

import torch
from measure import begin, new_parser, ratio, table, time_calls
from transformers import BertConfig, BertModel

from user_dir.attention import AlphaConfig
from user_dir.files import write_json
from user_dir.hugging_face import sparsify


def main() -> None:
    """Measure, print, and write."""
    args = new_parser(__doc__, rounds=15).parse_args()
    device, report = begin(args)
    rows = []
    for length in (128,) if args.quick else (32, 128, 256, 512):
        torch.manual_seed(args.seed)
        calls, x = {}, torch.randn(max(1, 1024 // length), length, 768, device=device)
        for name in ("sdpa", "α-entmax"):
            config = BertConfig(num_hidden_layers=1, vocab_size=10, attn_implementation="sdpa")
            model = BertModel(config).to(device)
            layer = model.encoder.layer[0]
            attention = layer.attention.self
            for projection in (attention.query, attention.key):  # untrained, all scores are near 0
                projection.weight.data.mul_(1.5 / (0.02 * 768**0.5))
            if name != "sdpa":
                sparsify(model, AlphaConfig())
                attention.alpha.a.data = torch.logit(torch.linspace(0.05, 0.95, 12, device=device))
            calls[name, "forward"] = lambda layer=layer, x=x: torch.no_grad()(layer.eval())(x)
            calls[name, "training"] = lambda layer=layer, x=x: layer.train()(x).sum().backward()
        times = time_calls(calls, args.rounds, args.seed)
        for what in ("forward", "training"):
            softmax, ours = times["sdpa", what], times["α-entmax", what]
            row = {"tokens": length, "sentences": len(x), "measure": what, "to_sdpa": ratio(ours, softmax)}
            rows.append({**row, "sdpa_ms": 1e3 * float(torch.tensor(softmax).median())})
    print(table(rows))
    write_json(args.output, {**report, "rows": rows})


if __name__ == "__main__":
    main()
