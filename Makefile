# Every target first creates or updates the virtual environment in .venv, which is reused until requirements change.
# PYTHON is the interpreter for it; if given explicitly, an existing .venv of another Python is replaced.
PYTHON ?= python3
BIN := .venv/bin
# One process per core; more than eight would mostly prepare the same fixtures.
PYTEST := $(BIN)/python -m pytest --numprocesses logical --maxprocesses 8 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-fast test-newest lint bench lock audit clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /: /' | sort

setup:  ## create or update the virtual environment in .venv
	@$(PYTHON) scripts/install.py $(if $(filter file,$(origin PYTHON)),,--this-python)

demo: setup  ## prepare the toy corpus, train on it, translate, score, write the head report
	$(BIN)/python scripts/prepare.py toy
	$(BIN)/python scripts/train.py configs/toy/alpha_entmax.yaml
	$(BIN)/python scripts/evaluate.py --path checkpoints/toy/alpha_entmax/checkpoint_best.pt --corpus toy
	$(BIN)/python scripts/report.py --path checkpoints/toy/alpha_entmax/checkpoint_best.pt --corpus toy

test: setup  ## run all tests except the nightly ones
	$(PYTEST) -m "not nightly"

test-all: setup  ## run all tests, including long parameter grids and known bugs of fairseq
	$(PYTEST)

test-fast: setup  ## run the tests that take seconds
	$(PYTEST) -m "not slow and not nightly"

test-newest: setup  ## run the tests that take seconds with the newest PyTorch that pip finds (gigabytes)
	$(BIN)/python -m pip install --quiet --upgrade --target .tools/newest torch
	PYTHONPATH=.tools/newest $(PYTEST) -m "not slow and not nightly"

lint: setup  ## run ruff, mypy (entmax, attention, latent), the import rules between packages and the budgets of lines
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/budgets.py

bench: setup  ## measure speed, memory and accuracy (data: scripts/prepare.py multi30k)
	$(BIN)/python benchmarks/kernels.py
	$(BIN)/python benchmarks/attention.py
	$(BIN)/python benchmarks/end_to_end.py
	$(BIN)/python benchmarks/aims.py

lock: .tools/bin/uv  ## recompute constraints.txt; UPGRADE=--upgrade takes the newest versions
	.tools/bin/uv pip compile --quiet $(UPGRADE) --universal --python-version 3.10 --no-python-downloads \
		--no-annotate --custom-compile-command "make lock" --output-file constraints.txt \
		requirements.txt requirements-dev.txt

audit: .tools/bin/uv  ## look up known vulnerabilities of the pinned versions (asks PyPI)
	.tools/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

.tools/bin/uv:
	$(PYTHON) -m venv --clear .tools
	.tools/bin/python -m pip install --quiet uv==0.13.9 pip-audit==2.10.1

clean:  ## remove builds, caches and, after asking, trainings; CONFIRM=yes does not ask
	rm -rf build adaptively_sparse.egg-info .mypy_cache .pytest_cache .ruff_cache
	@python=$(BIN)/python; test -x $$python || python=$(PYTHON); \
		$$python scripts/clean.py $(if $(filter yes,$(CONFIRM)),--yes)
