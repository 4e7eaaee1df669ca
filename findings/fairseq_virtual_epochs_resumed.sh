#!/bin/bash
# fairseq: with --virtual-epoch-size, a training resumed in the middle of the data draws another order.
set -eu
FOLDER=$(mktemp -d); trap 'rm -rf "$FOLDER"' EXIT
python3 -m venv "$FOLDER/venv"
"$FOLDER/venv/bin/pip" install -q --disable-pip-version-check fairseq-fixed==0.12.3.1 torch==2.13.0 "setuptools<82"
cat > "$FOLDER/epochs.py" <<'END'
from collections import OrderedDict

import numpy as np
from fairseq.data import FairseqDataset
from fairseq.data.multilingual.sampled_multi_epoch_dataset import SampledMultiEpochDataset

class Sentences(FairseqDataset):
    """A hundred sentences, which are their numbers."""

    sizes = np.full(100, 1)

    def __getitem__(self, index):
        return index

    def __len__(self):
        return 100

    def num_tokens(self, index):
        return 1

    size = num_tokens

def seen(first, last):
    """The sentences of the epochs of a process that begins with the first: fifty in each."""
    data = SampledMultiEpochDataset(
        OrderedDict(pair=Sentences()), sampling_ratios=None, epoch=first, virtual_size=100, virtual_epoch_size=50
    )
    found = []
    for epoch in range(first, last + 1):
        data.set_epoch(epoch)
        found += [data._get_dataset_and_index(number)[1] for number in range(len(data))]
    return found

begun = seen(1, 1)
print(len(set(seen(1, 2))), len(set(begun + seen(2, 2))), begun + seen(2, 2) == seen(1, 2))
END
FOUND=$("$FOLDER/venv/bin/python" -W ignore "$FOLDER/epochs.py" 2> "$FOLDER/said") || { cat "$FOLDER/said"; exit 1; }
echo "fairseq-fixed 0.12.3.1, the task translation_multi_simple_epoch, 100 sentences in two virtual epochs: how many a training"
echo "sees that goes through, and one whose second epoch is in another process; whether both see the same"
echo "one would guess: 100 100 True, as checkpoints keep what resuming needs"
echo "behaviour: $FOUND"
[ "$FOUND" = "100 75 False" ]
