#!/bin/bash
# sentencepiece: lines over 4,192 bytes or with U+2585 are not learned from, even with character_coverage=1.0.
set -eu
FOLDER=$(mktemp -d); trap 'rm -rf "$FOLDER"' EXIT
python3 -m venv "$FOLDER/venv"
"$FOLDER/venv/bin/pip" install -q --disable-pip-version-check sentencepiece==0.2.3
cat > "$FOLDER/learn.py" <<'END'
import io, sys
import sentencepiece
sentences = ["the dog sees a cat"] * 50 + ["ñ" + " dog" * 1100, "ŵ \u2585", "a<s>é"]
written = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(sentences), model_writer=written, model_type="bpe", vocab_size=20,
    character_coverage=1.0, minloglevel=2,
)
processor = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
unknown = [name for name, letter in (("long", "ñ"), ("U+2585", "ŵ"), ("<s>", "é")) if not processor.piece_to_id(letter)]
print("no piece for the letter beside:", ", ".join(unknown))
sys.exit(unknown != ["long", "U+2585"])
END
echo "sentencepiece 0.2.3, character_coverage=1.0: letters that stand only in a line of 4,402 bytes, beside U+2585 or beside <s>"
echo "one would guess: each has a piece, as the coverage is 1.0"
"$FOLDER/venv/bin/python" "$FOLDER/learn.py"
