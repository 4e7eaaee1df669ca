#!/bin/bash
# transformers 5: BertTokenizer replaces the normalizer of a tokenizer.json, so that a cased vocabulary is lower-cased.
set -eu
FOLDER=$(mktemp -d); trap 'rm -rf "$FOLDER"' EXIT
python3 -m venv "$FOLDER/venv"
"$FOLDER/venv/bin/pip" install -q --disable-pip-version-check transformers==5.23.0 tokenizers==0.23.3
FOUND=$(cd "$FOLDER" && venv/bin/python -c '
import json, os
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from transformers import AutoTokenizer
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "The"]
made = Tokenizer(WordPiece({word: row for row, word in enumerate(words)}, unk_token="[UNK]"))
made.normalizer, made.pre_tokenizer = BertNormalizer(lowercase=False), BertPreTokenizer()
os.mkdir("cased")
made.save("cased/tokenizer.json")
with open("cased/tokenizer_config.json", "w") as file:
    json.dump({"tokenizer_class": "BertTokenizer"}, file)
print(made.encode("The").tokens, AutoTokenizer.from_pretrained("cased").tokenize("The"))' 2> /dev/null)
echo "transformers 5.23.0, a tokenizer.json whose normalizer has lowercase: false, and a tokenizer_config.json without do_lower_case"
echo "one would guess: AutoTokenizer tokenizes by the tokenizer.json, as the library tokenizers does: ['The'] ['The']"
echo "behaviour: $FOUND"
[ "$FOUND" = "['The'] ['the']" ]
