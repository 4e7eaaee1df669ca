#!/bin/bash
# fairseq: --no-repeat-ngram-size has no effect on a CPU, because padding is compared instead of the end of the translation.
set -eu
FOLDER=$(mktemp -d); trap 'rm -rf "$FOLDER"' EXIT
python3 -m venv "$FOLDER/venv"
"$FOLDER/venv/bin/pip" install -q --disable-pip-version-check fairseq-fixed==0.12.3.1 torch==2.13.0 "setuptools<82"
FOUND=$("$FOLDER/venv/bin/python" -W ignore -c '
import torch
from fairseq.ngram_repeat_block import NGramRepeatBlock
buffer = torch.full((1, 12), 1)  # as in SequenceGenerator: padding behind the tokens so far
buffer[0, :7] = torch.tensor([2, 7, 8, 9, 5, 7, 8])
block = NGramRepeatBlock(3, use_extension=False)
for tokens in (buffer, buffer[:, :7]):
    scores = block(tokens, torch.zeros(1, 20), bsz=1, beam_size=1, step=6)
    print(scores.isinf().nonzero()[:, 1].tolist(), end=" ")' 2> "$FOLDER/said") || { cat "$FOLDER/said"; exit 1; }
echo "fairseq-fixed 0.12.3.1 (main of 2024), NGramRepeatBlock(3) without the CUDA extension after 7 8 9 5 7 8: symbols excluded"
echo "one would guess: 9, whether the buffer of tokens is longer than the translation so far, as in the search, or not"
echo "behaviour: $FOUND (the first as in the search)"
[ "$FOUND" = "[] [9] " ]
