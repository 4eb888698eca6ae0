# `make run` and `make test` start from nothing but Python (3.11 or newer) and make.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: run test test-slow test-all check install clean bench-peers

$(BIN)/dflash2-mlx: pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: https://www.python.org/downloads/"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.dev: $(BIN)/dflash2-mlx
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

install: $(BIN)/dflash2-mlx  ## a virtual environment with the command dflash2-mlx

run: install  ## answer prompts with the bundled pair, beside plain decoding
	$(BIN)/python scripts/first_run.py

test: $(VENV)/.dev  ## the fast tests
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-slow: $(VENV)/.dev  ## the slow sweeps
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow

test-all: test test-slow  ## all tests

check: $(VENV)/.dev  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench-peers: $(VENV)/.dev  ## our rate beside plain mlx-lm's and three other packages' (Linux)
	$(BIN)/python scripts/bench_peers.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
