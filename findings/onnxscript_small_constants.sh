#!/bin/bash
# onnxscript: torch.onnx.export removes additions of 1e-8, such as the ε of an RMS norm, and multiplications by 1.000009.
set -euo pipefail
FOLDER=$(mktemp -d); trap 'rm -rf "$FOLDER"' EXIT
python3 -m venv "$FOLDER/venv"
"$FOLDER/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 onnxscript==0.7.2 onnxruntime==1.32.0 numpy
cat > "$FOLDER/small.py" <<'END'
import os

import onnxruntime
import torch

class Norm(torch.nn.Module):
    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-8), x.double() * 1.000009

def results(**options):
    torch.onnx.export(Norm(), (x,), "norm.onnx", dynamo=True, verbose=False, **options)
    norm, product = onnxruntime.InferenceSession("norm.onnx").run(None, {"x": x.numpy()})
    return f"{norm[0, 0]:.3f} {norm[1, 0]:.3f} {product[2, 0]:.6f}"

os.environ["ORT_DISABLE_TELEMETRY"] = "1"
os.chdir(os.path.dirname(__file__))
x = torch.tensor([[0.0, 0.0], [1e-4, 1e-4], [1.0, 1.0]])
norm, product = Norm()(x)
print(f"{norm[0, 0]:.3f} {norm[1, 0]:.3f} {product[2, 0]:.6f}", results(), results(optimize=False), sep=", ")
END
FOUND=$("$FOLDER/venv/bin/python" "$FOLDER/small.py" 2> "$FOLDER/said" | tail -1) || { cat "$FOLDER/said"; exit 1; }
echo "onnxscript 0.7.2, torch 2.13.0, onnxruntime 1.32.0: an RMS norm with ε = 1e-8 of zeros and of 0.0001, and 1 * 1.000009 in"
echo "float64, by torch, by torch.onnx.export, and by it with optimize=False"
echo "one would guess: the three are equal"
echo "behaviour: $FOUND"
[ "$FOUND" = "0.000 0.707 1.000009, nan 1.000 1.000000, 0.000 0.707 1.000009" ]
