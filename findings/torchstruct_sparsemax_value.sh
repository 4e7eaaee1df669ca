#!/bin/bash
# torch-struct: marginals of SparseMaxSemiring are no derivatives of its value, which subtracts a norm in the place of half its square.
set -eu
FOLDER=$(mktemp -d); trap 'rm -rf "$FOLDER"' EXIT
python3 -m venv "$FOLDER/venv"
"$FOLDER/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 torch-struct==0.5 numpy
cat > "$FOLDER/value.py" <<'END'
import torch
from torch_struct import LinearChain, LogSemiring, SparseMaxSemiring
from torch_struct.semirings.sparse_max import project_simplex

class HalfSquare(SparseMaxSemiring):
    """max over p of p·x − ½|p|², whose derivative is p."""

    @staticmethod
    def sum(xs, dim=-1):
        p = project_simplex(xs.detach(), dim)
        return (p * xs).sum(dim) - p.square().sum(dim) / 2

def both(semiring):
    chain = LinearChain(semiring)
    step = torch.zeros_like(scores)
    step[0, 0, 0, 0] = 1e-6
    difference = chain.sum(scores + step) - chain.sum(scores - step)
    marginals = chain.marginals(scores.clone().requires_grad_())
    return f"{marginals[0, 0, 0, 0]:.4f} {difference.item() / 2e-6:.4f}"

# of a chain of three variables with two values each
scores = torch.tensor([[[[0.0, 0.5], [0.4, 0.1]], [[0.2, 0.0], [0.3, 0.6]]]], dtype=torch.float64)
print(both(LogSemiring), both(SparseMaxSemiring), both(HalfSquare), sep=", ")
END
FOUND=$("$FOLDER/venv/bin/python" "$FOLDER/value.py" 2> "$FOLDER/said") || { cat "$FOLDER/said"; exit 1; }
echo "torch-struct 0.5, torch 2.13.0: a marginal of a chain, and the derivative of its value by differences, with LogSemiring,"
echo "with SparseMaxSemiring, and with the value of Martins and Astudillo (2016) in the place of the latter's"
echo "one would guess: in each, both are equal"
echo "behaviour: $FOUND"
[ "$FOUND" = "0.1818 0.1818, 0.1045 0.1388, 0.1047 0.1047" ]
