#!/bin/bash
# inseq: embeddings of a Marian model with scale_embedding=True are scaled twice in its decoder, by inseq and by transformers.
set -eu
FOLDER=$(mktemp -d); trap 'rm -rf "$FOLDER"' EXIT
python3 -m venv "$FOLDER/venv"
"$FOLDER/venv/bin/pip" install -q --disable-pip-version-check inseq==0.7.1 transformers==5.24.0 torch==2.13.0
cat > "$FOLDER/attribute.py" <<'END'
import inseq
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import MarianConfig, MarianMTModel, PreTrainedTokenizerFast

WORDS = ["<pad>", "</s>", "<unk>", "a", "b", "c", "d"]
words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
words.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
sides = {f"{side}_{name}": 1 for side in ("encoder", "decoder") for name in ("layers", "attention_heads", "ffn_dim")}

def show(what, probabilities):
    print(f"{what}:", *(f"{each:.3f}" for each in probabilities.tolist()))

for scaled in (False, True):
    torch.manual_seed(0)
    special = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "forced_eos_token_id": None}
    sizes = {"vocab_size": len(WORDS), "d_model": 16, "max_position_embeddings": 8, "init_std": 0.3}
    model = MarianMTModel(MarianConfig(**special, **sizes, **sides, scale_embedding=scaled)).eval()
    source, target = (tokenizer(text, return_tensors="pt").input_ids for text in ("a b", "c d"))
    shown = model.get_input_embeddings()(torch.cat((torch.tensor([[0]]), target[:, :-1]), dim=1))

    def probabilities(**given):
        with torch.no_grad():
            return model(input_ids=source, **given).logits.softmax(-1)[0, range(3), target[0]]

    print(f"scale_embedding={scaled}")
    show("transformers", probabilities(labels=target))
    found = inseq.load_model(model, "saliency", tokenizer=tokenizer).attribute(
        "a b", "c d", attribute_target=True, step_scores=["probability"], show_progress=False
    )
    show("inseq", found[0].step_scores["probability"])
    if scaled:
        show("transformers, scaled before as well", probabilities(decoder_inputs_embeds=shown * 16**0.5))
END
FOUND=$("$FOLDER/venv/bin/python" -W ignore "$FOLDER/attribute.py" 2> "$FOLDER/said") || { cat "$FOLDER/said"; exit 1; }
echo "inseq 0.7.1 with transformers 5.24.0, probabilities of the target's three tokens by a random Marian model"
echo "one would guess: those that inseq attributes are the model's own"
echo "behaviour:"
echo "$FOUND"
python3 - "$FOUND" <<'CHECK'
import sys
_, own, found, _, scaled, found_scaled, twice = (line.split(": ")[-1] for line in sys.argv[1].splitlines())
sys.exit(not (own == found and scaled != found_scaled == twice))
CHECK
