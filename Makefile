# The commands of this repository.  Each makes its own virtual environment in .venv when it is not there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Compiled once, and not by each of the hundreds of processes that the tests start.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test coverage bench lint slow hunt clean lock

demo: $(STAMP)
	$(BIN)/hekla demo

test: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile

# Which lines the default tests run, as a report: nothing is refused for it.  Lines of processes that a test kills do not count.
coverage: $(STAMP)
	rm -rf .coverage && mkdir .coverage
	-$(BIN)/coverage run -m pytest -m "not slow" -n 2 --dist loadfile
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage html --quiet
	$(BIN)/coverage report

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

# The versions that the tests are known to pass with, by their hashes.
$(STAMP): pyproject.toml requirements-dev.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --require-hashes -r requirements-dev.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $(STAMP)

# After a change of the dependencies in pyproject.toml; what is pinned already stays as it is, UPGRADE=--upgrade takes the newest of all.
LOCKED := pyproject.toml requirements-build.in --universal --python-version 3.11 --generate-hashes --no-header --quiet $(UPGRADE)
HEADER := \# What is installed where the result has to be the same: in the image, and (-dev) for the tests.  Written by `make lock`.
lock:
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/pip install --quiet uv
	$(VENV)-lock/bin/uv pip compile $(LOCKED) --output-file requirements.lock
	$(VENV)-lock/bin/uv pip compile $(LOCKED) --extra dev --output-file requirements-dev.lock
	sed -i '1i $(HEADER)' requirements.lock requirements-dev.lock
	rm -rf $(VENV)-lock

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
