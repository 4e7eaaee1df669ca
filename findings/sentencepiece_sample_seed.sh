#!/bin/bash
# sentencepiece: the seed has no effect on the sample of sentences that pieces are learned from.
set -eu
FOLDER=$(mktemp -d); trap 'rm -rf "$FOLDER"' EXIT
python3 -m venv "$FOLDER/venv"
"$FOLDER/venv/bin/pip" install -q --disable-pip-version-check sentencepiece==0.2.3
cat > "$FOLDER/learn.py" <<'END'
import hashlib, io, random, sys
import sentencepiece
draw = random.Random(1)
words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(3000)]
sentences = [" ".join(draw.choices(words, k=8)) for _ in range(5000)]
sentencepiece.set_random_generator_seed(1)
written = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(sentences), model_writer=written, model_type="bpe", vocab_size=500, minloglevel=2,
    input_sentence_size=int(sys.argv[1]), shuffle_input_sentence=True,
)
print(hashlib.sha256(written.getvalue()).hexdigest()[:12])
END
models() { for _ in 1 2 3; do "$FOLDER/venv/bin/python" "$FOLDER/learn.py" "$1"; done | sort -u | wc -l; }
SAMPLED=$(models 500); WHOLE=$(models 0)
echo "sentencepiece 0.2.3, set_random_generator_seed(1), the same 5,000 sentences in three processes"
echo "one would guess: one model, with and without input_sentence_size=500"
echo "behaviour: $SAMPLED different models of 500 sampled sentences, $WHOLE of all sentences"
[ "$SAMPLED" -gt 1 ] && [ "$WHOLE" = 1 ]
