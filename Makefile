# Two commands do everything on a fresh machine with Python 3.11 or later: `make run`, `make test`.
# Mooncake comes in three builds: EXTRA=cpu (the default), cuda12 or cuda13.

PYTHON ?= python3
VENV ?= .venv
EXTRA ?= cpu
BIN := $(VENV)/bin
COUNTEREXAMPLE := scenarios/counterexamples/late-write-after-timeout.txt

.PHONY: run test lint bench soak soak-races soak-serving soak-matrix soak-model setup clean

run: $(VENV)/.run            ## reproduce a counterexample, and show that the ledger prevents it
	$(BIN)/racelab run $(COUNTEREXAMPLE) --policy eager --policy ledger

test: lint                   ## everything that CI checks
	$(BIN)/python -m pytest

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.dev          ## the numbers, as ratios measured in one run
	$(BIN)/python -m benchmarks

soak: soak-races soak-serving soak-matrix soak-model ## what counts in thousands; each run has to be as its scenario says

soak-races: $(VENV)/.run     ## five races a thousand times each, all reproduced; the same under the ledger, none; goes on where it was
	$(BIN)/python -m racelab.campaign.soak

soak-serving: $(VENV)/.run   ## 10,027 requests of mixed serving (shared prefixes, aborts, evictions), and 1,000 clean runs
	$(BIN)/racelab run scenarios/prefix-sharing-eviction.yaml --runs 271
	$(BIN)/racelab run scenarios/clean-serving.yaml --runs 1000

soak-matrix: $(VENV)/.run    ## every scenario under every policy and without each guard, as each scenario says
	$(BIN)/racelab matrix --labs 2

soak-model: $(VENV)/.dev     ## the counterexample of every guard of the model, on real processes, and with the guard back
	RACELAB_SOAK=1 $(BIN)/python -m pytest tests/system/test_pd_ledger.py

setup: $(VENV)/.dev

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV) || { echo "  next: sudo apt-get install python3-venv" >&2; exit 1; }

$(VENV)/.run: pyproject.toml $(VENV)/bin/python
	$(PYTHON) setup/system_libraries.py
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRA)]'
	touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.run
	$(PYTHON) setup/system_libraries.py --tests
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRA),tlc,frames,dev]'
	touch $@

clean:                       ## remove the environment and run output
	rm -rf $(VENV) results/runs
