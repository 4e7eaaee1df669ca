#!/bin/bash
# fairseq: --store-ema applies the decay to a shared parameter once for each of its names.
set -eu
FOLDER=$(mktemp -d); trap 'rm -rf "$FOLDER"' EXIT
python3 -m venv "$FOLDER/venv"
"$FOLDER/venv/bin/pip" install -q --disable-pip-version-check fairseq-fixed==0.12.3.1 torch==2.13.0 "setuptools<82"
cat > "$FOLDER/average.py" <<'END'
import torch
from fairseq.dataclass.configs import EMAConfig
from fairseq.models.ema.ema import EMA

class Model(torch.nn.Module):
    """Two parameters, one of them shared as embeddings are by encoder, decoder and output."""

    def __init__(self):
        super().__init__()
        self.alone = torch.nn.Parameter(torch.ones(1))
        self.encoder = self.decoder = self.output = torch.nn.Parameter(torch.ones(1))

model = Model()
average = EMA(model, EMAConfig(store_ema=True, ema_decay=0.9))
with torch.no_grad():
    model.alone.zero_()
    model.encoder.zero_()
average.step(model, 1)
print({name: round(value.item(), 4) for name, value in average.model.state_dict().items()})
END
FOUND=$("$FOLDER/venv/bin/python" -W ignore "$FOLDER/average.py" 2> "$FOLDER/said") || { cat "$FOLDER/said"; exit 1; }
echo "fairseq-fixed 0.12.3.1, moving average with decay 0.9 of parameters that go from 1 to 0, after one update"
echo "one would guess: 0.9 for all"
echo "behaviour: $FOUND (0.729 is 0.9 cubed)"
[ "$FOUND" = "{'alone': 0.9, 'encoder': 0.729, 'decoder': 0.729, 'output': 0.729}" ]
