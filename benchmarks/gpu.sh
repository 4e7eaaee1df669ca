#!/usr/bin/env bash
# Tests and measures everything that needs a GPU, the most important first, within thirteen minutes:
#
#     benchmarks/gpu.sh                # or some sections: benchmarks/gpu.sh attention tests
#
# Each section is a few commands with a time limit, without network; what they print is in SECTION.log of
# $OUT (runs/benchmarks/gpu), too, beside their reports. training, translation and multi30k need that corpus, prepared.
cd "$(dirname "$0")/.." || exit
out=${OUT:-runs/benchmarks/gpu} python=${PYTHON:-python} scratch=$(mktemp -d)
mkdir -p "$out"
sections=${*:-tests models training translation multi30k attention}
ended=

section() { # NAME SECONDS COMMANDS
	[[ " $sections " == *" $1 "* ]] || return
	printf '## %s\n\n' "$1"
	timeout "$2" bash -ec "$3" 2>&1 | tee "$out/$1.log"
	ended+="$1: exit status ${PIPESTATUS[0]}"$'\n'
}

training="$python benchmarks/end_to_end.py --only training --rounds 3"
random="$training --random-tokens --size base --precision bf16 --max-tokens"
section tests 90 "$python -m pytest -q -n logical --maxprocesses 8 -m 'not nightly' \
	tests/graphs tests/decoding tests/attention tests/entmax tests/models"
section models 180 "$random 4096 --output $out/models-4096.json; $random 16384 --output $out/models-16384.json"
section training 120 "$training --size tiny --precision fp16 --max-tokens 4096 --output $out/training.json"
section translation 60 "$python benchmarks/end_to_end.py --only translation --rounds 3 --size iwslt \
	--precision fp16 --output $out/translation.json"
section multi30k 220 "$python scripts/train.py configs/multi30k-de-en/alpha_entmax.yaml common.bf16=true \
	checkpoint.save_dir=$scratch; $python scripts/evaluate.py --path $scratch/checkpoint_best.pt"
section attention 70 "$python benchmarks/attention.py --rounds 7 --output $out/attention.json"
rm -rf "$scratch"
printf '%s' "$ended"
! grep -qv 'status 0$' <<< "${ended%$'\n'}"
