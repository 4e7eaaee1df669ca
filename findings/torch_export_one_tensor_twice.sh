#!/bin/bash
# torch.export: a tensor given for two arguments makes them one, and the program ignores one of them for ever.
set -eu
FOLDER=$(mktemp -d); trap 'rm -rf "$FOLDER"' EXIT
python3 -m venv "$FOLDER/venv"
"$FOLDER/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy
cat > "$FOLDER/export.py" <<'END'
import torch

class Attention(torch.nn.Module):
    def forward(self, query, key):
        return query + 2 * key

x, zeros, ones = torch.ones(3), torch.zeros(3), torch.ones(3)
found = []
for strict in (False, True):
    shared = torch.export.export(Attention(), (x, x), strict=strict).module()
    apart = torch.export.export(Attention(), (x, x.clone()), strict=strict).module()
    for program in (shared, apart):
        try:
            found.append(str(program(zeros, ones)[0].item()))
        except Exception as error:
            found.append(type(error).__name__)
print(*found)
END
FOUND=$("$FOLDER/venv/bin/python" "$FOLDER/export.py" 2> "$FOLDER/said") || { cat "$FOLDER/said"; exit 1; }
echo "torch 2.13.0, query + 2 * key exported with (x, x) and with (x, copy of x), not strict and strict, for (0, 1)"
echo "one would guess: 2.0 2.0 2.0 2.0, or an error for other arguments than one tensor twice"
echo "behaviour: $FOUND  (exported as self-attention, cross-attention gives key + 2 * key, in silence)"
[ "$FOUND" = "3.0 2.0 3.0 2.0" ]
