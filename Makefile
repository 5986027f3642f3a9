# make run    set up what a run needs, then aligned targets, FedPU and two baselines on 4,000 MNIST images
# make test   set up the rest, then all tests
# make soak   kills, damage, liars and bad inputs at random, for SECONDS=600 or as long as you say; report in runs/soak
# make stranger  clone, wheel and source archive, each in an empty environment outside the repository: five lines, the table
# make check  format, lint, types, and the order of the modules
# make docs   the documentation as a site, in site/
# make compiled  compile all that is installed, which else is done when it is first imported

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
# Two marks: what a run needs, and on top of it Flower, Ray, the linters and the tools of the tests.
READY_TO_RUN := $(VENV)/.ready-to-run
READY := $(VENV)/.ready

# The full MNIST, where it lies beside the project; tests that need it are skipped elsewhere.
ifneq ($(wildcard ../shared/data),)
export FEDPU_DATA ?= $(abspath ../shared/data)
endif
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# Compiled modules are kept: nodes, workers and commands are hundreds of processes in the tests.
unexport PYTHONDONTWRITEBYTECODE

SECONDS ?= 600

.PHONY: run test test-again soak stranger check docs compiled format clean

run: $(READY_TO_RUN)
	$(BIN)/fedpu compare --preset quickstart

test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder

# Those that failed the last time, one after another: real nodes and signals share two cores with all others in 'test'.
test-again: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --last-failed --last-failed-no-failures none

soak: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/soak --seconds $(SECONDS) --out runs/soak

stranger:
	$(PYTHON) benchmarks/stranger.py

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

docs: $(READY)
	$(BIN)/mkdocs build --strict

# Tests start many processes, some of which are told not to write what they compile. A few files are no Python, and are left.
compiled: $(READY)
	$(BIN)/python -m compileall -qq $(VENV)/lib src || true

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(READY_TO_RUN): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
# Of PyTorch's thousands of modules a run imports a fraction: those are compiled when they are first used, not all of them now.
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable .
	touch $@

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'
	touch $(READY_TO_RUN) $@

clean:
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .hypothesis
