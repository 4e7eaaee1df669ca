#!/bin/bash
# sacrebleu: paired randomisation of systems that differ in a single sentence has the smallest possible p, because ties do not count.
set -eu
FOLDER=$(mktemp -d); trap 'rm -rf "$FOLDER"' EXIT
python3 -m venv "$FOLDER/venv"
"$FOLDER/venv/bin/pip" install -q --disable-pip-version-check sacrebleu==2.6.0
FOUND=$("$FOLDER/venv/bin/python" -c '
import logging
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest
logging.disable(logging.ERROR)
references = [f"the cat number {i} sits on the old mat" for i in range(100)]
other = ["a dog", *references[1:]]
for test in ("ar", "bs"):
    _, results = PairedTest([("a", references), ("b", other)], {"BLEU": BLEU()}, [references], test, 1000)()
    print(round(results["BLEU"][1].p_value, 3), end=" ")' 2> "$FOLDER/said") || { cat "$FOLDER/said"; exit 1; }
echo "sacrebleu 2.6.0, 100 sentences, of which two systems translate one differently: p of randomisation and bootstrap, 1,000 samples"
echo "one would guess: about 1, because a swap gives the same difference or its negative"
echo "behaviour: $FOUND"
case "$FOUND" in "0.001 "*) ;; *) exit 1 ;; esac
