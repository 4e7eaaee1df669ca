#!/bin/bash
# safetensors: a file that is read into NumPy's arrays stays in memory beside them until it is closed.
set -eu
FOLDER=$(mktemp -d); trap 'rm -rf "$FOLDER"' EXIT
python3 -m venv "$FOLDER/venv"
"$FOLDER/venv/bin/pip" install -q --disable-pip-version-check safetensors==0.8.0 numpy==2.4.6
cat > "$FOLDER/read.py" <<'END'
import sys
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

path, how = sys.argv[1:]
if how == "write":
    save_file({str(i): np.full((1 << 20,), i, np.float32) for i in range(100)}, path)  # 100 x 4 MiB
    sys.exit()

def peak() -> int:
    return int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]) >> 10

before, found = peak(), {}
if how == "one file":
    with safe_open(path, "np") as file:
        for name in list(file.keys()):
            found[name] = file.get_tensor(name)
else:
    for i in range(100):
        with safe_open(path, "np") as file:
            found[str(i)] = file.get_tensor(str(i))
print(round((peak() - before) / 400, 1))
END
P="$FOLDER/venv/bin/python"
"$P" "$FOLDER/read.py" "$FOLDER/a.safetensors" write
ONE=$("$P" "$FOLDER/read.py" "$FOLDER/a.safetensors" "one file")
EACH=$("$P" "$FOLDER/read.py" "$FOLDER/a.safetensors" "a file for each")
echo "safetensors 0.8.0, safe_open(…, 'np') of 400 MiB of float32 in 100 tensors, which are all kept"
echo "one would guess: the peak of memory grows by the 400 MiB that the arrays have, or, if they are maps of the file, by less"
echo "behaviour: it grows by $ONE times as much; by $EACH times if the file is opened anew for each tensor"
[ "$ONE" = 2.0 ] && [ "$EACH" = 1.0 ]
