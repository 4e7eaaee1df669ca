# Everything sets itself up: a virtual environment in .venv, made once and reused while requirements stay.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# One process per core; more than eight would spend their time on preparing the same fixtures.
PYTEST := $(BIN)/python -m pytest --numprocesses logical --maxprocesses 8 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast lint bench clean

help:  ## what there is to make
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /: /' | sort

setup: $(STAMP)  ## the virtual environment

$(STAMP): requirements.txt requirements-dev.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	# pip 24.1 and later refuse the metadata of fairseq 0.12.2, which older Pythons need.
	$(BIN)/python -m pip install --quiet --upgrade \
		"$$($(BIN)/python -c 'import sys; print("pip" if sys.version_info >= (3, 11) else "pip<24.1")')"
	$(BIN)/python -m pip install --requirement requirements.txt --requirement requirements-dev.txt
	touch $@

demo: $(STAMP)  ## prepare the toy corpus, train on it, translate, score, report on the heads
	$(BIN)/python scripts/prepare.py toy
	$(BIN)/python scripts/train.py configs/toy/alpha_entmax.yaml
	$(BIN)/python scripts/average_checkpoints.py checkpoints/toy/alpha_entmax --last-epochs 5 \
		--output checkpoints/toy/alpha_entmax/average.pt
	$(BIN)/python scripts/evaluate.py --path checkpoints/toy/alpha_entmax/average.pt --corpus toy
	$(BIN)/python scripts/report.py --path checkpoints/toy/alpha_entmax/average.pt --corpus toy

test: $(STAMP)  ## all tests
	$(PYTEST)

test-fast: $(STAMP)  ## the tests that take seconds
	$(PYTEST) -m "not slow"

lint: $(STAMP)  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: $(STAMP)  ## speed, memory and accuracy beside the peers (data: scripts/prepare.py multi30k)
	$(BIN)/python scripts/benchmark.py kernels
	$(BIN)/python scripts/benchmark.py end-to-end

clean:  ## remove what training left, but no data and no environment
	rm -rf checkpoints outputs .pytest_cache .ruff_cache
