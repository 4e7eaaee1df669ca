#!/bin/bash
# entmax: near α = 1, entmax_bisect's gradient in α has the wrong sign in float32, and at α = 1 its output is uniform.
set -eu
FOLDER=$(mktemp -d); trap 'rm -rf "$FOLDER"' EXIT
python3 -m venv "$FOLDER/venv"
"$FOLDER/venv/bin/pip" install -q --disable-pip-version-check entmax==1.3 torch==2.13.0 numpy
FOUND=$("$FOLDER/venv/bin/python" -c '
import torch
from entmax import entmax_bisect
scores, values = torch.tensor([2.0, 1.0, 0.0, -1.0]), torch.tensor([1.0, 2.0, 3.0, 4.0])
for alpha in (1.1, 1.001, 1.0001, 1.000001):
    line = []
    for dtype in (torch.float32, torch.float64):
        a = torch.tensor([alpha], dtype=dtype, requires_grad=True)
        (entmax_bisect(scores.to(dtype), alpha=a) @ values.to(dtype)).backward()
        line.append(round(a.grad.item(), 2))
    print(f"α = {alpha}: {line[0]} in float32, {line[1]} in float64")
print("α = 1:", entmax_bisect(scores, alpha=1.0).tolist(), "softmax:", [round(p, 3) for p in scores.softmax(0).tolist()])')
echo "entmax 1.3, entmax_bisect of the scores 2, 1, 0, -1; derivative in α of the mean of 1, 2, 3, 4 under its weights"
echo "one would guess: a derivative near -0.95 down to α = 1, in either precision, and softmax (or an error) at α = 1"
echo "behaviour:"
echo "$FOUND"
python3 - "$FOUND" <<'CHECK'
import re, sys
lines = sys.argv[1].splitlines()
single = [float(re.search(r": (\S+) in float32", line)[1]) for line in lines[:4]]
double = [float(re.search(r"float32, (\S+) in", line)[1]) for line in lines[:4]]
as_found = all(-1 < each < -0.9 for each in double) and single[2] > 10 and single[3] > 10000
sys.exit(not (as_found and lines[4].startswith("α = 1: [0.25, 0.25, 0.25, 0.25]")))
CHECK
