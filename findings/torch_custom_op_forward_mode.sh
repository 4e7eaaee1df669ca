#!/bin/bash
# torch: an operator with register_autograd has a forward-mode derivative of 0, without an error.
set -eu
FOLDER=$(mktemp -d); trap 'rm -rf "$FOLDER"' EXIT
python3 -m venv "$FOLDER/venv"
"$FOLDER/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy
cat > "$FOLDER/derivatives.py" <<'END'
import torch

@torch.library.custom_op("finding::square", mutates_args=(), schema="(Tensor x) -> Tensor")
def square(x):
    return x * x

square.register_autograd(
    lambda ctx, grad: 2 * grad * ctx.saved_tensors[0],
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)
x = torch.tensor([3.0], requires_grad=True)
(reverse,) = torch.autograd.grad(square(x).sum(), x)
_, forward = torch.func.jvp(square, (x.detach(),), (torch.ones(1),))
try:
    by_func = torch.func.grad(lambda x: square(x).sum())(x.detach()).item()
except RuntimeError as error:
    by_func = "setup_context" if "setup_context" in str(error) else str(error)
print(reverse.item(), forward.item(), by_func)
END
FOUND=$("$FOLDER/venv/bin/python" "$FOLDER/derivatives.py" 2> "$FOLDER/said") || { cat "$FOLDER/said"; exit 1; }
echo "torch 2.13.0, an operator x*x of torch.library with register_autograd, at 3: autograd, func.jvp, func.grad"
echo "one would guess: 6.0 6.0 6.0, or an error for the forward mode that was not registered"
echo "behaviour: $FOUND  (jvp gives 0 in silence; func.grad asks for a setup_context that was given)"
[ "$FOUND" = "6.0 0.0 setup_context" ]
