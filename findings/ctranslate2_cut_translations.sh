#!/bin/bash
# CTranslate2: a hypothesis cut at max_decoding_length is ranked beside complete ones without the probability of its end.
set -eu
FOLDER=$(mktemp -d); trap 'rm -rf "$FOLDER"' EXIT
python3 -m venv "$FOLDER/venv"
"$FOLDER/venv/bin/pip" install -q --disable-pip-version-check ctranslate2==4.8.5 numpy
cat > "$FOLDER/translate.py" <<'END'
import math
import sys
import ctranslate2
import numpy

# These are the probabilities at each step: all weights are 0, and only the output has a bias.
WORDS, CHANNELS = {"<unk>": 1e-9, "<s>": 1e-9, "</s>": 0.25, "a": 0.6, "b": 0.15}, 4
spec = ctranslate2.specs.TransformerSpec.from_config(1, 1, pre_norm=False)

def linear(part, outputs):
    part.weight, part.bias = numpy.zeros((outputs, CHANNELS), "float32"), numpy.zeros(outputs, "float32")

def sublayer(part, *linears):
    part.layer_norm.gamma = part.layer_norm.beta = numpy.zeros(CHANNELS, "float32")
    for each, factor in linears:
        linear(each, factor * CHANNELS)

for layer in (spec.encoder.layer[0], spec.decoder.layer[0]):
    sublayer(layer.self_attention, *zip(layer.self_attention.linear, (3, 1)))
    sublayer(layer.ffn, (layer.ffn.linear_0, 1), (layer.ffn.linear_1, 1))
sublayer(layer.attention, *zip(layer.attention.linear, (1, 2, 1)))
spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = numpy.zeros((len(WORDS), CHANNELS), "float32")
linear(spec.decoder.projection, len(WORDS))
spec.decoder.projection.bias = numpy.log(list(WORDS.values())).astype("float32")
spec.register_source_vocabulary(list(WORDS))
spec.register_target_vocabulary(list(WORDS))
spec.validate()
spec.save(sys.argv[1])

translator = ctranslate2.Translator(sys.argv[1], intra_threads=1)
found = translator.translate_batch(
    [["a"]], beam_size=3, num_hypotheses=3, return_scores=True, length_penalty=0, min_decoding_length=0, max_decoding_length=2
)[0]
scored = translator.score_batch([["a"]] * 3, found.hypotheses)
for words, score, alone in zip(found.hypotheses, found.scores, scored):
    print(f"{' '.join(words) or '(empty)'}: {math.exp(score):.2f} by translate_batch, {math.exp(sum(alone.log_probs)):.2f} by score_batch")
END
mkdir "$FOLDER/model"
FOUND=$("$FOLDER/venv/bin/python" "$FOLDER/translate.py" "$FOLDER/model" 2> "$FOLDER/said") || { cat "$FOLDER/said"; exit 1; }
echo "ctranslate2 4.8.5, a model of which each next word is a with 0.6, b with 0.15 and the end with 0.25; max_decoding_length=2"
echo "one would guess: translate_batch finds the probability of complete translations, as score_batch does, and ranks by it"
echo "behaviour:"
echo "$FOUND"
[ "$FOUND" = "a a: 0.36 by translate_batch, 0.09 by score_batch
(empty): 0.25 by translate_batch, 0.25 by score_batch
a: 0.15 by translate_batch, 0.15 by score_batch" ]
