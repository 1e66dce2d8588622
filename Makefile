# One command per intent. `make lab` and `make test` need nothing but Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: help install lab test test-slow test-cluster test-full lint check dist docs format bench gpu-check clean

help:
	@echo "make lab        run mnist-lab on bundled data: a study with findings, a few minutes"
	@echo "make test       the tests: five minutes on two cores"
	@echo "make test-slow  the slower ones, of which CI runs what fits its time"
	@echo "make test-full  all of them, on the full data sets too"
	@echo "make test-cluster  the tests on real Ray and Slurm clusters of two nodes"
	@echo "make check      format, lint, types, tests, slow ones too"
	@echo "make lint       format, lint and types alone"
	@echo "make format     put the code in order"
	@echo "make bench      measure what the README and docs claim about speed"
	@echo "make gpu-check  the tests and benchmarks that need an NVIDIA GPU"
	@echo "make dist       build the wheel and the sdist and check them"
	@echo "make docs       the documentation as a site to read offline, in site/"
	@echo "make install    make .venv with everything for development"

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
		|| { echo "trainlab needs Python 3.11, 3.12 or 3.13; $(PYTHON) is `$(PYTHON) --version`. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# Installs go through the constraints file, always: it pins the torch we test with. What is large is installed two at
# a time. Of its thousands of modules only those that a lab imports are compiled, by importing them: that takes a
# third of the time.
INSTALL := $(PIP) install --no-warn-conflicts --no-compile --constraint constraints.txt
LARGE := pandas pyarrow scipy tensorboard typst vl-convert-python
COMPILE := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -c
USED := torch.utils.tensorboard, trainlab.execute.worker, trainlab.cli.run_verbs, trainlab.cli.live_progress, \
	trainlab.cli.run_summary, trainlab.lab, trainlab.report.writing

$(VENV)/.lab: $(VENV)/.made pyproject.toml constraints.txt
	@echo "Installing trainlab into $(VENV) (once; a minute or two) ..."
	@$(INSTALL) --no-deps torch & $(INSTALL) $(LARGE) && wait $$!
	@$(INSTALL) --editable '.[page]'
	@$(COMPILE) 'import torch._dynamo' & $(COMPILE) 'import pyarrow.parquet, pandas, scipy.stats' && wait $$!
	@$(COMPILE) 'import $(USED)'
	@touch $@

$(VENV)/.dev: $(VENV)/.lab
	@echo "Installing the development tools ..."
	@$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch $@

install: $(VENV)/.dev

lab: $(VENV)/.lab
	@$(BIN)/trainlab run mnist-lab --data bundled --train-samples 1000 --seeds 5

test: install
	@$(BIN)/python -m pytest -m "not slow and not full and not cluster" -n 2 --dist worksteal

test-slow: install
	@$(BIN)/python -m pytest -m "slow and not full and not cluster" -n 2 --dist worksteal

test-cluster: install
	@$(BIN)/python -m pytest -m cluster -rs

test-full: install
	@$(BIN)/python -m pytest -m "not cluster" -n 2 --dist worksteal

lint: install
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

check: lint test test-slow

# ARGS="--python python3.12" fetches all that the wheel needs, for that Python.
dist: $(VENV)/.lab
	@$(BIN)/python scripts/check_dist.py $(ARGS)

format: install
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: install
	@$(BIN)/python -m benchmarks.loop
	@$(BIN)/python -m benchmarks.engines
	@$(BIN)/python -m benchmarks.models
	@$(BIN)/python -m benchmarks.start
	@$(BIN)/python -m benchmarks.cost
	@$(BIN)/python -m benchmarks.turns
	@$(BIN)/python -m benchmarks.repeat
	@$(BIN)/python -m benchmarks.cost_power
	@$(BIN)/python -m benchmarks.verdicts
	@$(BIN)/python -m benchmarks.reproduce

# Where there is no GPU these tests skip with a reason, and the benchmark says that it has none.
gpu-check: install
	@$(BIN)/python -m pytest -m cuda -rs
	@$(BIN)/python -m benchmarks.engines --device cuda
	@$(BIN)/python -m benchmarks.models --device cuda

$(VENV)/.docs: $(VENV)/.lab
	@$(PIP) install --constraint constraints.txt --editable '.[docs]'
	@touch $@

docs: $(VENV)/.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "Open site/index.html: search works from disk too, and nothing is fetched from outside."

clean:
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .hypothesis
