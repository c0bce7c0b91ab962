# make reproduce   Table 2 on generated text, from nothing but Python 3.11+, pip, make and git
# make test        the linters and the test suite
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help reproduce test test-slow chaos lint format clean

help: ## what there is to make
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 14

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --editable .
	@touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@

reproduce: .venv/installed ## Table 2 on generated text
	$(BIN)/python -m workflows.reproduce_table2

test: .venv/installed-dev lint ## linters and tests
	$(BIN)/python -m pytest

test-slow: .venv/installed-dev ## the tests that take minutes
	$(BIN)/python -m pytest -m slow

chaos: .venv/installed-dev ## any process killed at random, results compared; AIAYN_CHAOS_SEED, AIAYN_CHAOS_KILLS
	$(BIN)/python -m pytest -m slow tests/chaos -s

lint: .venv/installed-dev ## ruff and mypy
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/installed-dev ## ruff's formatter and fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## removes the environment and the caches, not the runs
	rm -rf .venv build *.egg-info .mypy_cache .ruff_cache .pytest_cache
