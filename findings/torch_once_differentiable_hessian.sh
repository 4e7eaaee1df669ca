#!/bin/bash
# torch: a second derivative through a function marked once_differentiable is 0, without the error it promises.
set -eu
FOLDER=$(mktemp -d); trap 'rm -rf "$FOLDER"' EXIT
python3 -m venv "$FOLDER/venv"
"$FOLDER/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy
cat > "$FOLDER/second.py" <<'END'
import torch
from torch.autograd.function import once_differentiable
from torch.autograd.functional import hessian, hvp

class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return 3 * ctx.saved_tensors[0] ** 2 * grad

def result(compute):
    try:
        return f"{compute():.2f}"
    except RuntimeError:
        return "error"

def by_backward():
    x = at.clone().requires_grad_()
    torch.autograd.grad(Cube.apply(x).sin(), x, create_graph=True)[0].backward()
    return x.grad.item()

at, one = torch.tensor(0.5), torch.tensor(1.0)
print(
    result(lambda: hessian(lambda x: (x**3).sin(), at)),
    result(lambda: hessian(lambda x: Cube.apply(x).sin(), at)),
    result(lambda: hvp(lambda x: Cube.apply(x).sin(), at, one)[1]),
    result(by_backward),
)
END
FOUND=$("$FOLDER/venv/bin/python" "$FOLDER/second.py" 2> "$FOLDER/said") || { cat "$FOLDER/said"; exit 1; }
echo "torch 2.13.0, second derivative of sin(x^3): by ** alone; with x^3 as a once_differentiable function: hessian, hvp, backward"
echo "one would guess: the first is a number, the others raise the error that once_differentiable promises"
echo "behaviour: $FOUND  (where the derivative is asked for by its input, it is 0 in silence)"
[ "$FOUND" = "2.91 0.00 0.00 error" ]
