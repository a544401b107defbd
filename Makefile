# Thin: each target makes .venv when it is not there, installs, runs.
PYTHON ?= python3
WORKDIR ?= quickstart
VENV := .venv
BIN := $(VENV)/bin

.PHONY: quickstart test lint clean

quickstart: $(VENV)/installed  ## Train a translator on the phrasebook, try it.
	$(BIN)/python -m trainers.wmt \
	    --flagfile=trainers/configs/quickstart.flags --workdir=$(WORKDIR)

test: $(VENV)/installed-test  ## The whole test suite, in two processes.
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

clean:
	rm -rf $(VENV) build *.egg-info

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: setup.py pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/installed-test: setup.py pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --editable ".[test]"
	touch $@ $(VENV)/installed
