#!/bin/bash
# fairseq: --store-ema loses the last norms of a Transformer with --encoder-normalize-before and --decoder-normalize-before.
# After each update the averages are loaded into the averaged model as a checkpoint is. Versions of modules are left out of
# them, so that they count as a checkpoint from before these norms existed.
set -eu
FOLDER=$(mktemp -d); trap 'rm -rf "$FOLDER"' EXIT
python3 -m venv "$FOLDER/venv"
"$FOLDER/venv/bin/pip" install -q --disable-pip-version-check fairseq-fixed==0.12.3.1 torch==2.13.0 "setuptools<82"
cat > "$FOLDER/average.py" <<'END'
from types import SimpleNamespace
import torch
from fairseq.data import Dictionary
from fairseq.dataclass.configs import EMAConfig
from fairseq.models.ema.ema import EMA
from fairseq.models.transformer import TransformerConfig, TransformerModelBase

words = Dictionary()
tokens = torch.tensor([[words.add_symbol(word) for word in "abc"]])
for normalize_before in (False, True):
    torch.manual_seed(1)
    settings = TransformerConfig()
    for side in (settings.encoder, settings.decoder):
        side.embed_dim = side.ffn_embed_dim = 16
        side.layers, side.attention_heads, side.normalize_before = 1, 2, normalize_before
    settings.decoder.input_dim = settings.decoder.output_dim = 16
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    model = TransformerModelBase.build_model(settings, task).eval()
    average = EMA(model, EMAConfig(store_ema=True, ema_decay=0.9))
    average.step(model, 1)
    lost = sorted(model.state_dict().keys() - average.model.state_dict().keys())
    output, averaged = (each(tokens, torch.tensor([3]), tokens)[0] for each in (model, average.model))
    same = "same" if torch.allclose(output, averaged, atol=1e-4) else "other"
    print(f"norms {'before' if normalize_before else 'after'} each part: {same} output;", "lost:", *lost or ["nothing"])
END
FOUND=$("$FOLDER/venv/bin/python" -W ignore "$FOLDER/average.py" 2> "$FOLDER/said") || { cat "$FOLDER/said"; exit 1; }
echo "fairseq-fixed 0.12.3.1, a Transformer whose parameters do not change, and its moving average after one update"
echo "one would guess: the same output, and nothing lost"
echo "behaviour:"
echo "$FOUND"
LOST="decoder.layer_norm.bias decoder.layer_norm.weight encoder.layer_norm.bias encoder.layer_norm.weight"
[ "$FOUND" = "norms after each part: same output; lost: nothing
norms before each part: other output; lost: $LOST" ]
