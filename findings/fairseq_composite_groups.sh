#!/bin/bash
# fairseq: the optimizer composite ignores settings of a group without parameters, and has no default for a group without settings.
set -eu
FOLDER=$(mktemp -d); trap 'rm -rf "$FOLDER"' EXIT
python3 -m venv "$FOLDER/venv"
"$FOLDER/venv/bin/pip" install -q --disable-pip-version-check fairseq-fixed==0.12.3.1 torch==2.13.0 "setuptools<82"
cat > "$FOLDER/update.py" <<'END'
import logging
import torch
from fairseq.optim.composite import CompositeOptimizerConfig, FairseqCompositeOptimizer
from omegaconf import OmegaConf

logging.basicConfig(level="INFO")

def update(rates, groups):
    """Parameters that are 1, each in one of the groups, after an update with gradients of 1 and a learning rate for each group."""
    params = [torch.nn.Parameter(torch.ones(1)) for _ in groups]
    for param, group in zip(params, groups):
        param.param_group, param.grad = group, torch.ones(1)
    settings = OmegaConf.structured(CompositeOptimizerConfig)
    for group, rate in rates.items():
        sgd = {"_name": "sgd", "momentum": 0.0, "weight_decay": 0.0, "lr": [rate]}
        settings.groups[group] = {"optimizer": sgd, "lr_scheduler": {"_name": "fixed"}}
    try:
        FairseqCompositeOptimizer(settings, params).step()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return [param.item() for param in params]

print(update({"default": 0.5, "adaptors": 0.25}, ["default", "default"]))
print(update({"default": 0.5}, ["default", "adapters"]))
END
FOUND=$("$FOLDER/venv/bin/python" "$FOLDER/update.py" 2> "$FOLDER/said") || { cat "$FOLDER/said"; exit 1; }
SAID=$(grep -c adaptors "$FOLDER/said" || true)
echo "fairseq-fixed 0.12.3.1, optimizer composite, two parameters that are 1, after an update with gradients of 1"
echo "rates 0.5 for default, 0.25 for adaptors; both parameters in default. One would guess: an error, or a warning that names adaptors"
echo "rate 0.5 for default; a parameter in default, the other in adapters. One would guess: both are trained as default, [0.5, 0.5]"
echo "behaviour, with $SAID messages about adaptors:"
echo "$FOUND"
[ "$SAID" = 0 ]
[ "$FOUND" = "[0.5, 0.5]
ConfigKeyError: Missing key adapters" ]
