# make reproduce   Table 2 on generated text; needs only Python 3.11.4+, pip, make and git
# make test        the linters and the test suite
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
# Python compiles a module when it is first imported; of the 17 000 that are installed, most never are.
unexport PYTHONDONTWRITEBYTECODE
# setuptools warns of folders named like the packages: those are the packages.
INSTALL := PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable

.PHONY: help reproduce test test-fast test-slow test-clusters chaos gpu lint format constraints clean

help: ## list these targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 14

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv --without-pip .venv
	$(PYTHON) -m pip --python $(BIN)/python install --quiet --no-compile --constraint constraints.txt pip
	$(INSTALL) .
	@touch $@

.venv/installed-dev: .venv/installed
	$(INSTALL) '.[dev]'
	@touch $@

reproduce: .venv/installed ## reproduce Table 2 on generated text
	$(BIN)/python -m workflows.reproduce_table2

# Two processes, since most tests compute on one core; one of them runs all tests of Ray.
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist loadgroup
test: .venv/installed-dev lint ## run the linters and the tests
	$(PYTEST)

test-fast: .venv/installed-dev lint ## run the linters and the tests that start neither Ray nor training runs
	$(PYTEST) -m 'not slow and not ray and not spawns'

test-slow: .venv/installed-dev ## run the tests that take minutes
	$(BIN)/python -m pytest -m slow

test-clusters: .venv/installed-dev ## start the clusters of infra/ in containers; as root on Debian, whose podman it installs
	bash tests/infra/prepare.sh
	$(BIN)/python -m pytest -m slow tests/infra

chaos: .venv/installed-dev ## kill processes at random and compare the results; AIAYN_CHAOS_SEED, AIAYN_CHAOS_KILLS
	$(BIN)/python -m pytest -m slow tests/chaos -s

GPU_PYTHON = $(or $(wildcard $(BIN)/python),$(PYTHON))
# A first compilation of the whole model takes minutes, so tests may take longer than elsewhere.
gpu: ## check and measure a GPU, without Ray, MLflow and .venv too; results in build/gpu
	$(if $(wildcard $(BIN)/python),$(MAKE) --no-print-directory .venv/installed-dev)
	$(GPU_PYTHON) -m benchmarks.gpu --out build/gpu; measured=$$?; \
	$(GPU_PYTHON) -m pytest -q -m gpu -k cuda -o timeout=1800 tests/model tests/pipeline/training/test_on_devices.py tests/workflows/test_on_gpus.py && exit $$measured

lint: .venv/installed-dev ## check formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/installed-dev ## format the code and apply automatic fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

constraints: .venv/installed-dev ## pin constraints.txt to the versions now in .venv
	{ sed '/^[^#]/,$$d' constraints.txt; $(BIN)/pip freeze --all --exclude-editable | sed 's/+.*//'; } > .venv/constraints.txt
	mv .venv/constraints.txt constraints.txt
	@touch .venv/installed .venv/installed-dev

clean: ## remove the environment and caches, but not the runs
	rm -rf .venv build *.egg-info .mypy_cache .ruff_cache .pytest_cache
