#!/bin/bash
# fairseq: the task masked_lm masks <s>, </s> and separators like words, and counts them in its perplexity.
set -euo pipefail
FOLDER=$(mktemp -d); trap 'rm -rf "$FOLDER"' EXIT
python3 -m venv "$FOLDER/venv"
"$FOLDER/venv/bin/pip" install -q --disable-pip-version-check fairseq-fixed==0.12.3.1 torch==2.13.0 transformers==5.23.0 "setuptools<82"
cat > "$FOLDER/mask.py" <<'END'
import sys
from pathlib import Path
import torch
from fairseq.data import Dictionary, ListDataset
from fairseq.data.mask_tokens_dataset import MaskTokensDataset
from transformers import BertTokenizer, DataCollatorForLanguageModeling

LINE, SPECIAL, TIMES = "[CLS] a b c [SEP] d e f [SEP]", [0, 4, 8], 20000
names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"]
words = Dictionary(bos="[CLS]", pad="[PAD]", eos="[SEP]", unk="[UNK]", extra_special_symbols=["[MASK]"])
for name in names:
    words.add_symbol(name)
line = torch.tensor([words.index(name) for name in LINE.split()])
lines = ListDataset([line] * TIMES, [len(line)] * TIMES)
_, targets = MaskTokensDataset.apply_mask(
    lines, words, pad_idx=words.pad(), mask_idx=words.index("[MASK]"), seed=1, mask_prob=0.15
)
fairseq = torch.stack([targets[i] for i in range(TIMES)]).ne(words.pad())

Path(sys.argv[1], "vocab.txt").write_text("".join(f"{name}\n" for name in names))
tokenizer = BertTokenizer.from_pretrained(sys.argv[1])
collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15, seed=1)
ids = tokenizer("a b c", "d e f")["input_ids"]
assert tokenizer.convert_ids_to_tokens(ids) == LINE.split()
transformers = collator([{"input_ids": ids}] * TIMES)["labels"].ne(-100)
for found in (fairseq, transformers):
    special = torch.zeros(len(line), dtype=torch.bool)
    special[SPECIAL] = True
    print(*(f"{found[:, part].float().mean():.2f}" for part in (special, ~special)))
END
FOUND=$("$FOLDER/venv/bin/python" -W ignore "$FOLDER/mask.py" "$FOLDER" 2> "$FOLDER/said" | tr '\n' ' ') || { cat "$FOLDER/said"; exit 1; }
echo "fairseq-fixed 0.12.3.1 and transformers 5.23.0, 15 % masking of lines [CLS] a b c [SEP] d e f [SEP]: the share of"
echo "special tokens and of words that are to be predicted"
echo "one would guess: 0 and 0.15 (BERT), with both"
echo "behaviour: fairseq's MaskTokensDataset and transformers' DataCollatorForLanguageModeling: $FOUND"
[ "$FOUND" = "0.15 0.15 0.00 0.15 " ]
