# The commands of this repository.  Each makes its own virtual environment in .venv when it is not there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Compiled once, and not by each of the hundreds of processes that the tests start.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test bench lint slow hunt clean

demo: $(STAMP)
	$(BIN)/hekla demo

test: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile

slow: $(STAMP)
	$(BIN)/python -m pytest -m slow -rs

# Properties on examples that nobody has seen yet; run it as often as there is time.
hunt: $(STAMP)
	HEKLA_EXAMPLES=search $(BIN)/python -m pytest -m hypothesis -p no:cacheprovider --hypothesis-seed=$$(date +%s)

bench: $(STAMP)
	$(BIN)/python -m benchmarks

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/lint-imports
	$(BIN)/mypy

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
