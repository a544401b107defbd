# Each target makes .venv and installs into it what it needs, if it is not there.
PYTHON ?= python3
WORKDIR ?= quickstart
SEED ?= $(shell date +%s)
VENV := .venv
BIN := $(VENV)/bin
VENV_JAX := .venv-jax
VENV_DOCS := .venv-docs
VENV_BEAM := .venv-beam
VENV_PEERS := .venv-peers
PEERS := ctranslate2 joeynmt opennmt_tf pytorch transformers
PEERS_PYTHON ?= python3.11

.PHONY: help quickstart test test-rest test-all test-cpus test-random test-jax test-beam test-argos lint format constraints notebook docs peers clean
.DEFAULT_GOAL := help

help:  ## Show this text.
	@echo "make TARGET [PYTHON=python3] [WORKDIR=quickstart]"
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /:/' \
	    | awk -F: '{ printf "  %-12s %s\n", $$1, $$2 }'

quickstart: $(VENV)/installed  ## Train a translator on the built-in corpus.
	$(BIN)/python -m trainers.wmt \
	    --flagfile=trainers/configs/quickstart.flags --workdir=$(WORKDIR)

test: $(VENV)/installed-test  ## Run each test once, but for slow variants, in three processes; PART=documents runs one folder.
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(PART:%=tests/%)

test-rest: $(VENV)/installed-test  ## Run what a rule of tests/later.py moves from `test`.
	$(BIN)/python -m pytest -m slow -n 2 --dist loadfile --no-loadscope-reorder $(PART:%=tests/%)

test-all: test test-rest  ## Run all tests that need no other environment.

test-cpus: $(VENV)/installed-test  ## Run the tests of numbers with the kernels of other CPUs; ROWS=avx2: one row.
	$(BIN)/python tests/cpus.py $(ROWS:%=--rows=%) \
	    -n 2 --dist loadfile --no-loadscope-reorder

test-random: $(VENV)/installed-test  ## Run the tests in another order; SEED=1: the first.
	$(BIN)/python -m pytest --order-seed=$(SEED) \
	    -n 2 --dist loadfile --no-loadscope-reorder

test-jax: $(VENV_JAX)/installed  ## Run the tests of JAX, without TensorFlow.
	$(VENV_JAX)/bin/python -m pytest -o addopts=-ra \
	    --confcutdir=tests/jax_engine tests/jax_engine

test-beam: $(VENV_BEAM)/installed  ## Run the tests with Apache Beam.
	$(VENV_BEAM)/bin/python -m pytest -m beam tests/bulk/bulk_test.py

test-argos: $(VENV)/installed-test $(VENV_PEERS)/argos/installed  ## Run the test with Argos Translate.
	$(BIN)/python -m pytest -m argos tests/exports/argos_test.py

lint: $(VENV)/installed-test  ## Check style, format and types.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/installed-test  ## Format the code, and fix what can be fixed.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

constraints: $(VENV)/installed-test  ## Write constraints.txt, the versions of the server's image.
	{ grep '^#' constraints.txt; $(BIN)/pip freeze --exclude-editable; } > constraints.new
	mv constraints.new constraints.txt

notebook: $(VENV)/installed-test  ## Run the notebook of the site, and store its outputs.
	PYTHONPATH=. $(BIN)/python docs/site/notebooks.py examples/annotated_transformer.ipynb

docs: $(VENV_DOCS)/installed  ## Build the documentation site, build/site.
	NO_MKDOCS_2_WARNING=1 $(VENV_DOCS)/bin/python -m mkdocs build

peers: $(PEERS:%=$(VENV_PEERS)/%/installed)  ## Make the environments of benchmarks/peers.

clean:  ## Remove the environments and what was built.
	rm -rf $(VENV) $(VENV_JAX) $(VENV_DOCS) $(VENV_BEAM) $(VENV_PEERS) \
	    build *.egg-info .*_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: setup.py pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/installed-test: setup.py pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --editable ".[test]"
	touch $@ $(VENV)/installed

$(VENV_JAX)/installed: setup.py pyproject.toml requirements-jax.txt
	$(PYTHON) -m venv $(VENV_JAX)
	$(VENV_JAX)/bin/pip install --quiet -r requirements-jax.txt "pytest>=9,<10"
	$(VENV_JAX)/bin/pip install --quiet --no-deps --editable .
	touch $@

$(VENV_BEAM)/installed: setup.py pyproject.toml
	$(PYTHON) -m venv $(VENV_BEAM)
	$(VENV_BEAM)/bin/pip install --quiet --editable ".[beam,test]"
	touch $@

# The project's own requirements without TensorFlow are enough to read its code.
$(VENV_DOCS)/installed: pyproject.toml requirements-jax.txt
	$(PYTHON) -m venv $(VENV_DOCS)
	$(VENV_DOCS)/bin/pip install --quiet "pip>=25.1"
	$(VENV_DOCS)/bin/pip install --quiet -r requirements-jax.txt --group docs
	touch $@

# OpenNMT-tf needs TensorFlow 2.12, which is not built for later Pythons.
$(VENV_PEERS)/%/installed: benchmarks/peers/%.txt
	@$(PEERS_PYTHON) -c "import sys; sys.exit(sys.version_info[:2] != (3, 11))" \
	    || { echo "expected a Python 3.11. Received:" \
	         "PEERS_PYTHON=$(PEERS_PYTHON)" >&2; exit 2; }
	$(PEERS_PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet -r $<
	touch $@
