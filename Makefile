# `make run` serves, `make test` runs everything; each sets up what it needs in .venv first.
# Nothing but Python 3.11, Java 17 (for the tests) and make is needed beforehand.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
WORKERS ?= 2
SECONDS ?= 300
ARGS ?=
# Tests start hundreds of Pythons, which are not to compile what they import each time anew, wherever that is asked for.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run test setup lint style format unit integration cluster chaos bench bench-cluster bench-scaling \
	bench-counting bench-loading bench-spark clean

help:
	@echo "make run      serve on http://127.0.0.1:8080 with ./braid-data (ARGS='--port 9090' for more)"
	@echo "make test     set up and run everything: lint, types, unit, integration, cluster, simulation"
	@echo "make setup    a complete .venv with .venv/bin/mq"
	@echo "make chaos    random faults on a cluster for SECONDS=300, with its seed and verdict (ARGS='--seed N' repeats)"
	@echo "make unit | integration | cluster | lint | format | clean"
	@echo "make bench | bench-cluster | bench-scaling | bench-counting | bench-loading | bench-spark"

run: $(VENV)/.server
	@exec $(BIN)/mq serve $(ARGS)

setup: $(VENV)/.all

# Types are checked at low priority while the tests run, which wait a lot.
test: style
	@nice $(BIN)/mypy & types=$$!; \
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(ARGS); tests=$$?; \
	wait $$types || { echo "make test: mypy found errors, which are printed above; make lint repeats them" >&2; exit 1; }; \
	exit $$tests

lint: style
	$(BIN)/mypy

style: $(VENV)/.all
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .

format: $(VENV)/.all
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --quiet --fix .

unit integration cluster: $(VENV)/.all
	$(BIN)/python -m pytest tests/$@ $(ARGS)

chaos: $(VENV)/.all
	$(BIN)/python -m tests.cluster.chaos --seconds $(SECONDS) $(ARGS)

bench: $(VENV)/.all
	$(BIN)/python bench/throughput.py $(ARGS)

bench-cluster: $(VENV)/.all
	$(BIN)/python bench/cluster.py $(ARGS)

bench-scaling: $(VENV)/.all
	$(BIN)/python bench/scaling.py $(ARGS)

bench-counting: $(VENV)/.all
	$(BIN)/python bench/counting.py $(ARGS)

bench-loading: $(VENV)/.all
	$(BIN)/python bench/loading.py $(ARGS)

bench-spark: $(VENV)/.all
	$(BIN)/python bench/spark_reading.py $(ARGS)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || { echo "make: Python 3.11 or later is needed; name it: make PYTHON=python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.server: pyproject.toml constraints.txt | $(VENV)/.made
	@echo "installing what serving needs into $(VENV) ..."
	$(PIP) --editable '.[server]'
	@touch $@

$(VENV)/.all: pyproject.toml constraints.txt | $(VENV)/.made
	@echo "installing everything into $(VENV) ..."
	$(PIP) --editable '.[server,spark,dev]'
	@touch $@ $(VENV)/.server
