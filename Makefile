# Everything sets itself up: a virtual environment in .venv, made once and reused while requirements stay.
# PYTHON is what it is made with; named, .venv must be of that Python.
PYTHON ?= python3
BIN := .venv/bin
# One process per core; more than eight would spend their time on preparing the same fixtures.
PYTEST := $(BIN)/python -m pytest --numprocesses logical --maxprocesses 8 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-fast lint bench lock audit clean

help:  ## what there is to make
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /: /' | sort

setup:  ## the virtual environment
	@$(PYTHON) scripts/install.py $(if $(filter file,$(origin PYTHON)),,--this-python)

demo: setup  ## prepare the toy corpus, train on it, translate, score, report on the heads
	$(BIN)/python scripts/prepare.py toy
	$(BIN)/python scripts/train.py configs/toy/alpha_entmax.yaml
	$(BIN)/python scripts/average_checkpoints.py checkpoints/toy/alpha_entmax --last-epochs 5 \
		--output checkpoints/toy/alpha_entmax/average.pt
	$(BIN)/python scripts/evaluate.py --path checkpoints/toy/alpha_entmax/average.pt --corpus toy
	$(BIN)/python scripts/report.py --path checkpoints/toy/alpha_entmax/average.pt --corpus toy

test: setup  ## all tests but the nightly ones
	$(PYTEST) -m "not nightly"

test-all: setup  ## all tests: also long grids and upstream's own bugs
	$(PYTEST)

test-fast: setup  ## the tests that take seconds
	$(PYTEST) -m "not slow and not nightly"

lint: setup  ## ruff, mypy over the mathematics, and the arrows between rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup  ## speed, memory and accuracy beside the peers (data: scripts/prepare.py multi30k)
	$(BIN)/python scripts/benchmark.py kernels
	$(BIN)/python scripts/benchmark.py end-to-end

lock: .tools/bin/uv  ## constraints.txt anew from the requirements; newer versions of all with UPGRADE=--upgrade
	.tools/bin/uv pip compile --quiet $(UPGRADE) --universal --python-version 3.10 --no-python-downloads \
		--no-annotate --custom-compile-command "make lock" --output-file constraints.txt \
		requirements.txt requirements-dev.txt

audit: .tools/bin/uv  ## known holes in what constraints.txt names (asks PyPI)
	.tools/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

.tools/bin/uv:
	$(PYTHON) -m venv --clear .tools
	.tools/bin/python -m pip install --quiet uv==0.13.9 pip-audit==2.10.1

clean:  ## remove what training and building left, but no data and no environment
	rm -rf checkpoints outputs build adaptively_sparse.egg-info .mypy_cache .pytest_cache .ruff_cache
