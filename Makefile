# A fresh machine needs Python 3.10 or newer and make; everything else goes into .venv.

PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime-ready
TORCH := $(VENV)/.torch-ready
DEV := $(VENV)/.dev-ready
EXAMPLE := examples/two_ranks

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo demo-check demo-mindspore test test-fast test-mindspore check bench golden clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(RUNTIME) ## install what a user needs and compare the example dumps with the documented command
	@$(BIN)/opassay shim --into $(BIN)
	PATH="$(CURDIR)/$(BIN):$$PATH" msprobe compare -tp $(EXAMPLE)/target/step0 -gp $(EXAMPLE)/golden/step0 -o output/demo
	@echo "reports:" && ls -1 output/demo/*

demo-check: $(TORCH) ## run the calls of a real L1 dump again, on the cpu, with statistics and with tensors
	$(BIN)/opassay -f pytorch run_ut -api_info examples/check/statistics/dump.json -o output/demo-check/statistics --device cpu
	$(BIN)/opassay -f pytorch multi_run_ut -n 2 -api_info examples/check/tensor/dump.json -o output/demo-check/tensor --device cpu
	@echo "files:" && ls -1 output/demo-check/*

demo-mindspore: $(TORCH) ## judge the recorded results of a real MindSpore dump; runs its calls again where MindSpore is set up
	$(BIN)/opassay -f mindspore run_ut -api_info examples/mindspore/mindspore/step0/rank0/dump.json -o output/demo-mindspore/tensor
	@if [ -e .venv-mindspore/.ready ]; then \
	  .venv-mindspore/bin/opassay -f mindspore multi_run_ut -d 0 1 -api_info examples/check_mindspore/dump.json -o output/demo-mindspore/statistics; \
	else echo "make test-mindspore sets up MindSpore; then the calls of examples/check_mindspore are run as well"; fi
	@echo "files:" && ls -1 output/demo-mindspore/*

test: $(DEV) ## run every test (WORKERS=2 processes)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

test-fast: $(DEV) ## run the tests that need no compiling, no workers and no large dump
	$(BIN)/python -m pytest -m "not slow"

test-mindspore: ## set up MindSpore in .venv-mindspore and run the tests that need it; says so where it has no wheel
	PYTHON="$(PYTHON)" .ci/test-mindspore

check: $(DEV) ## lint, format, types and import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(DEV) ## measure speed and memory (BENCH_SCALE=small|full, BENCH_RIVAL=path/to/msprobe)
	$(BIN)/python -m benchmarks

golden: $(DEV) ## rewrite the expected reports under tests; read the diff before you commit it
	OPASSAY_REWRITE_GOLDEN=1 $(BIN)/python -m pytest -m "" tests/test_golden.py tests/report/test_console.py

clean: ## remove what the targets made, but for .venv
	rm -rf build/bench build/bench.jsonl dist output
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -not -path './.venv-mindspore/*' -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "opassay needs Python 3.10 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)

$(RUNTIME): pyproject.toml hatch_build.py | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(TORCH): $(RUNTIME)
	$(BIN)/python -m pip install --quiet --editable '.[torch]'
	@touch $@

$(DEV): requirements-dev.txt $(RUNTIME)
	$(BIN)/python -m pip install --quiet --requirement requirements-dev.txt
	@touch $@
