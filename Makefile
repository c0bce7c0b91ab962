# make reproduce   Table 2 on generated text; needs only Python 3.11.4+, pip, make and git
# make test        the linters and the test suite
# TORCH=cpu or TORCH=cuda chooses the build of torch that is installed; `make clean` first to change it.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
# Python compiles a module when it is first imported; of the 17 000 that are installed, most never are.
unexport PYTHONDONTWRITEBYTECODE
PIP_INSTALL := $(BIN)/pip install --quiet --no-compile --constraint constraints.txt
# setuptools warns of folders named like the packages: those are the packages.
INSTALL := PYTHONWARNINGS=ignore $(PIP_INSTALL) --editable

# PyPI's torch for Linux brings 4 GB of CUDA. Without an NVIDIA driver, torch comes from PyTorch's index of CPU builds.
CPU_INDEX := https://download.pytorch.org/whl/cpu
$(if $(filter-out cpu cuda,$(TORCH)),$(error TORCH is "$(TORCH)": set it to cpu or cuda))
# An environment with CUDA keeps it, since a cluster's login node may share it and have no driver.
HAS_CUDA = $(shell command -v nvidia-smi 2>/dev/null)$(wildcard /proc/driver/nvidia .venv/lib/python3*/site-packages/nvidia)
BUILD = $(or $(TORCH),$(if $(HAS_CUDA),cuda,cpu))
# A mirror or firewall may hide that index. That costs a line and some seconds, not the installation.
define CPU_TORCH
@$(PIP_INSTALL) --no-deps --retries 1 --timeout 10 --index-url $(CPU_INDEX) torch >.venv/torch.log 2>&1 || \
	echo "no torch from $(CPU_INDEX) (.venv/torch.log says why): taking that of pip's own index, perhaps with CUDA (5.7 GB)"
endef
# make expands a recipe before running it, so $(shell date) is the time at its start.
define REPORT
@du -sk .venv | awk -v s=$$(($$(date +%s) - $(shell date +%s))) \
	-v torch="$$(sed -n "s/^__version__ = '\(.*\)'/\1/p" .venv/lib/python3*/site-packages/torch/version.py)" \
	'{ printf "installed into .venv: %.1f GB in %d s, torch %s\n", $$1 * 1.024e-6, s, torch }'
endef

.PHONY: help reproduce test test-fast test-slow test-clusters test-lowest evidence chaos gpu lint format constraints audit clean

help: ## list these targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 14

.venv/installed: pyproject.toml constraints.txt
	@echo "torch for $(BUILD) (TORCH=cpu or TORCH=cuda chooses): about $(if $(filter cpu,$(BUILD)),1.7,5.7) GB"
	$(PYTHON) -m venv --without-pip .venv
	$(PYTHON) -m pip --python $(BIN)/python install --quiet --no-compile --constraint constraints.txt pip
	$(if $(filter cpu-Linux,$(BUILD)-$(shell uname)),$(CPU_TORCH))
	$(INSTALL) .
	@touch $@
	$(REPORT)

.venv/installed-dev: .venv/installed
	$(INSTALL) '.[dev]'
	@touch $@
	$(REPORT)

reproduce: .venv/installed ## reproduce Table 2 on generated text
	$(BIN)/aiayn table2

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

evidence: .venv/installed ## train, on real text, what the claims are judged by; continues where it was stopped (infra/evidence.sh)
	bash infra/evidence.sh

chaos: .venv/installed-dev ## kill processes at random and compare the results; AIAYN_CHAOS_SEED, AIAYN_CHAOS_KILLS
	$(BIN)/python -m pytest -m slow tests/chaos -s

GPU_PYTHON = $(or $(wildcard $(BIN)/python),$(PYTHON))
gpu: ## check and measure a GPU, without Ray, MLflow and .venv too; results in build/gpu
	$(if $(wildcard $(BIN)/python),$(MAKE) --no-print-directory .venv/installed-dev)
	$(GPU_PYTHON) -m benchmarks.gpu --out build/gpu

lint: .venv/installed-dev ## check formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/installed-dev ## format the code and apply automatic fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

constraints: .venv/installed-dev ## pin constraints.txt to the versions now in .venv, with the extra cluster, and write locks/
	$(INSTALL) '.[cluster]'
	{ sed '/^[^#]/,$$d' constraints.txt; $(BIN)/pip freeze --all --exclude-editable | sed 's/+.*//'; } > .venv/constraints.txt
	mv .venv/constraints.txt constraints.txt
	$(BIN)/python locks/write.py $(CPU_INDEX)
	@touch .venv/installed .venv/installed-dev

# Of each library that pyproject.toml names, the lowest version that it and the others allow.
build/lowest.txt: pyproject.toml
	$(PYTHON) -m venv build/lowest
	build/lowest/bin/pip install --quiet uv
	build/lowest/bin/uv pip compile --quiet --resolution lowest-direct --all-extras pyproject.toml --output-file $@

test-lowest: build/lowest.txt ## run the tests of `make test` with the lowest versions allowed, in build/lowest; UV_TORCH_BACKEND=cpu spares 4 GB of CUDA
	build/lowest/bin/uv pip install --quiet --python build/lowest --requirement build/lowest.txt --editable .
	build/lowest/bin/python -m pytest --numprocesses 2 --dist loadgroup --deselect tests/infra/test_files.py  # of the pinned versions

audit: build/lowest.txt ## look for published faults of the pinned versions and of the lowest ones allowed (pip-audit asks PyPI)
	$(PYTHON) -m venv build/audit
	build/audit/bin/pip install --quiet pip-audit
	build/audit/bin/pip-audit --no-deps --disable-pip --requirement constraints.txt
	build/audit/bin/pip-audit --no-deps --disable-pip --requirement build/lowest.txt

clean: ## remove the environment and caches, but not the runs
	rm -rf .venv build *.egg-info .mypy_cache .ruff_cache .pytest_cache
