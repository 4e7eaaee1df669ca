#!/bin/bash
# sacremoses: removing control characters joins the words around a tab, where the Moses script writes a space.
set -eu
FOLDER=$(mktemp -d); trap 'rm -rf "$FOLDER"' EXIT
python3 -m venv "$FOLDER/venv"
"$FOLDER/venv/bin/pip" install -q --disable-pip-version-check sacremoses==0.1.1
FOUND=$("$FOLDER/venv/bin/python" -c '
from sacremoses import MosesPunctNormalizer
print(MosesPunctNormalizer("de").remove_control_chars("Haus\tsieht\u200bBaum"))')
echo "sacremoses 0.1.1, MosesPunctNormalizer.remove_control_chars of 'Haus<TAB>sieht<U+200B>Baum'"
echo "one would guess: 'Haus sieht Baum', as remove-non-printing-char.perl of Moses writes a space for each"
echo "behaviour: '$FOUND'"
[ "$FOUND" = HaussiehtBaum ]
