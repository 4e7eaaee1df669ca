#!/bin/bash
# entmax: the second derivatives of entmax15 and entmax_bisect are NaN as soon as one weight is 0.
set -eu
FOLDER=$(mktemp -d); trap 'rm -rf "$FOLDER"' EXIT
python3 -m venv "$FOLDER/venv"
"$FOLDER/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 entmax==1.3 numpy
cat > "$FOLDER/second.py" <<'END'
import torch
from entmax import entmax15, entmax_bisect
from torch.autograd.functional import hessian

WORTH = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)

def both(function, scores):
    def value(x):
        return (function(x) * WORTH).sum()

    def slope(x):
        x = x.clone().requires_grad_()
        return torch.autograd.grad(value(x), x)[0][0]

    step = torch.tensor([1e-5, 0, 0], dtype=torch.float64)
    by_differences = (slope(scores + step) - slope(scores - step)) / 2e-5
    return f"{hessian(value, scores)[0, 0]:.3f} {by_differences:.3f}"

dense, sparse = (torch.tensor([0.4, 0.1, last], dtype=torch.float64) for last in (0.0, -3.0))
print(both(lambda x: entmax15(x, -1), dense), both(lambda x: entmax15(x, -1), sparse), sep=", ", end=", ")
print(both(lambda x: entmax_bisect(x, 1.5, -1), sparse))
END
FOUND=$("$FOLDER/venv/bin/python" "$FOLDER/second.py" 2> "$FOLDER/said") || { cat "$FOLDER/said"; exit 1; }
echo "entmax 1.3, torch 2.13.0: an entry of the Hessian by autograd and by differences of the gradient, of entmax15 where no"
echo "weight is 0, of entmax15 and of entmax_bisect where one is"
echo "one would guess: both are equal everywhere"
echo "behaviour: $FOUND"
[ "$FOUND" = "-0.059 -0.059, nan 0.040, nan 0.040" ]
