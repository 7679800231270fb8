# Tenure: `make run` starts it, `make test` checks it. Nothing is needed beyond Python >= 3.11, make and a package index.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
JOBS   ?= 2
INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation

# uv reads no pip configuration, so the index that pip is told to use is handed on.
LOCK = UV_DEFAULT_INDEX="$${UV_DEFAULT_INDEX:-$$($(BIN)/pip config get global.index-url 2>/dev/null)}" \
	$(VENV)/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header --no-annotate

.DEFAULT_GOAL := help
.PHONY: help venv run test lint format lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP) ## make the virtual environment, pinned by deploy/lock/dev.txt

$(STAMP): deploy/lock/build.txt deploy/lock/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "tenure needs Python 3.11 or newer, and '$(PYTHON)' is not; try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "'$(PYTHON)' has no venv module; on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --require-hashes -r deploy/lock/build.txt
	$(INSTALL) --require-hashes -r deploy/lock/dev.txt
	$(INSTALL) --no-deps --editable .
	@touch $@

run: venv ## start a supervisor: embedded PostgreSQL, three replicas, sample work; Ctrl-C drains
	@exec $(BIN)/tenure up --replicas 3 --sample

test: venv lint ## run every check and the whole test suite; REDIS=real|hostile|dead gives every replica such a Redis
	$(if $(REDIS),TENURE_TEST_REDIS=$(REDIS)) $(BIN)/pytest -n $(JOBS)

lint: venv ## run ruff, mypy (strict) and the import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: venv ## format the code and apply the safe fixes
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

lock: venv ## resolve deploy/lock/*.txt again, to the newest versions
	$(BIN)/python -m venv $(VENV)/lock
	$(VENV)/lock/bin/pip install --quiet --disable-pip-version-check uv
	$(LOCK) -o deploy/lock/runtime.txt pyproject.toml
	$(LOCK) -c deploy/lock/runtime.txt --group dev -o deploy/lock/dev.txt pyproject.toml
	$(LOCK) -c deploy/lock/runtime.txt --group build -o deploy/lock/build.txt

clean: ## remove the virtual environment and caches; the database under .tenure stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist
	find supervisor actors schemas tests -name __pycache__ -type d -prune -exec rm -rf {} +
