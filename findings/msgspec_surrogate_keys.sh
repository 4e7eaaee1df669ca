#!/bin/bash
# msgspec: a lone surrogate among the keys, which json reads, is not a ValidationError but a UnicodeEncodeError.
set -eu
FOLDER=$(mktemp -d); trap 'rm -rf "$FOLDER"' EXIT
python3 -m venv "$FOLDER/venv"
"$FOLDER/venv/bin/pip" install -q --disable-pip-version-check msgspec==0.22.0
FOUND=$("$FOLDER/venv/bin/python" -c '
import json, msgspec
class Head(msgspec.Struct):
    alpha: float
value = json.loads("{\"alpha\": 1.5, \"\\ud800\": 2}")
for kind in (Head, dict[str, float]):
    try:
        msgspec.convert(value, kind)
        print("accepted", end=" ")
    except Exception as error:
        print(type(error).__name__, end=" ")')
echo "msgspec 0.22.0, convert of json.loads('{\"alpha\": 1.5, \"\\ud800\": 2}') to a Struct with the field alpha, and to dict[str, float]"
echo "one would guess: the Struct ignores the unknown key, or ValidationError as for any value that does not fit; the dict alike"
echo "behaviour: $FOUND"
[ "$FOUND" = "UnicodeEncodeError accepted " ]
