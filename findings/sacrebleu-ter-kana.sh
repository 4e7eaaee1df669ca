#!/bin/bash
# sacrebleu's TER with asian_support splits Chinese characters, but neither kana nor Thai.
set -eu
W=$(mktemp -d); trap 'rm -rf "$W"' EXIT
python3 -m venv "$W/venv"
"$W/venv/bin/pip" install -q sacrebleu==2.6.0
"$W/venv/bin/python" - <<'EOF'
import sys
from importlib.metadata import version

from sacrebleu.metrics import BLEU, TER

print("sacrebleu", version("sacrebleu"))
ter = TER(normalized=True, asian_support=True)
print("guess: with normalized and asian_support, text without spaces is split into characters, as documented for")
print("       'Asian (CJK) character sequences': of four characters, one wrong one is a TER of 25")
texts = "白黒赤青", "ねこねこ", "ネコネコ", "หมาหมา"
found = {text: ter.corpus_score(["x" + text[1:]], [[text]]).score for text in texts}
for text, score in found.items():
    print(f"{text}: TER {score:g}")
mixed = ter.corpus_score(["猫がねむる"], [["犬がねむる"]]).score
print(f"猫がねむる for 犬がねむる: TER {mixed:g}; the kana are one token")
codes = {code: BLEU(trg_lang=code).tokenizer.signature() for code in ("zh", "zh_CN", "ZH", "zho_Hans", "yue", "th")}
print("BLEU's tokenizer for trg_lang:", codes)
whole = all(score == 100 for text, score in found.items() if text != "白黒赤青")
same = found["白黒赤青"] == 25 and whole and mixed == 50
same &= codes.pop("zh") == "zh" and set(codes.values()) == {"13a"}
print("as known" if same else "the behaviour has changed")
sys.exit(not same)
EOF
