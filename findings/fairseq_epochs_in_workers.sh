#!/bin/bash
# fairseq: with --num-workers 1 (the default), a masked language model sees the same masks in every epoch.
set -euo pipefail
FOLDER=$(mktemp -d); trap 'rm -rf "$FOLDER"' EXIT
python3 -m venv "$FOLDER/venv"
"$FOLDER/venv/bin/pip" install -q --disable-pip-version-check fairseq-fixed==0.12.3.1 torch==2.13.0 "setuptools<82"
cat > "$FOLDER/masks.py" <<'END'
import numpy as np
import torch
from fairseq.data import Dictionary, FairseqDataset, SortDataset
from fairseq.data.mask_tokens_dataset import MaskTokensDataset
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask

class Lines(FairseqDataset):
    """Twenty lines of forty words."""

    sizes = np.full(20, 40)

    def __getitem__(self, index):
        return torch.arange(4, 44)

    def __len__(self):
        return 20

    def num_tokens(self, index):
        return 40

    size = num_tokens

words = Dictionary()
for number in range(50):
    words.add_symbol(f"word{number}")
task = MaskedLMTask(MaskedLMConfig(), words)
masked, _ = MaskTokensDataset.apply_mask(
    Lines(), words, pad_idx=words.pad(), mask_idx=task.mask_idx, seed=1, mask_prob=0.15
)
masked = SortDataset(masked, [Lines.sizes])
masked.collater = torch.stack
for workers in (0, 1):
    batches = task.get_batch_iterator(masked, max_sentences=20, num_workers=workers, disable_iterator_cache=True)
    epochs = [next(iter(batches.next_epoch_itr(shuffle=False))) for _ in range(3)]
    print(len({str(each.tolist()) for each in epochs}))
END
FOUND=$("$FOLDER/venv/bin/python" -W ignore "$FOLDER/masks.py" 2> "$FOLDER/said" | tr '\n' ' ') || { cat "$FOLDER/said"; exit 1; }
echo "fairseq-fixed 0.12.3.1, the task masked_lm: how many different maskings of the same lines three epochs have, with"
echo "--num-workers 0, and with 1"
echo "one would guess: 3 and 3 (dynamic masking, as in RoBERTa)"
echo "behaviour: $FOUND"
[ "$FOUND" = "3 1 " ]
