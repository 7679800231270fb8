# Tenure: `make run` starts it, `make test` checks it. Nothing is needed beyond Python >= 3.11, make and a package index.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
JOBS   ?= 5
INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation

# uv reads no pip configuration, so the index that pip is told to use is handed on.
LOCK = UV_DEFAULT_INDEX="$${UV_DEFAULT_INDEX:-$$($(BIN)/pip config get global.index-url 2>/dev/null)}" \
	$(VENV)/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header --no-annotate

.DEFAULT_GOAL := help
.PHONY: help venv run test chaos sim model bench tools lint format lock clean

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

# What tests compare with or talk to, where it is not installed: taken from the system's packages if we may.
WANTED = git subversion jdupes chromium iproute2 nftables spin
chaos: WANTED += pgbouncer faketime strace
bench: WANTED += rmlint fdupes rdfind b3sum
# Not installed but unpacked: these packages would start a server, or are the library of one that would.
UNPACK   = prometheus openssh-server libwrap0
UNPACKED = $(VENV)/unpacked
tools:
	@missing=; for package in $(WANTED); do dpkg -s $$package >/dev/null 2>&1 || missing="$$missing $$package"; done; \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		export DEBIAN_FRONTEND=noninteractive; timeout 60 apt-get update -qq >/dev/null 2>&1; \
		for package in $$missing; do \
			timeout 180 apt-get install -y -qq --no-install-recommends $$package >/dev/null 2>&1 || \
				echo "could not install $$package: tests that need it are reported as not run"; \
		done; \
	elif [ -n "$$missing" ]; then echo "not installed:$$missing; tests that need them are reported as not run"; fi
	@! command -v apt-get >/dev/null || for package in $(UNPACK); do \
		dpkg -s $$package >/dev/null 2>&1 || [ -e $(UNPACKED)/$$package ] || ( \
			mkdir -p $(UNPACKED) && cd $(UNPACKED) && timeout 180 apt-get download $$package >/dev/null 2>&1 && \
			dpkg -x $${package}_*.deb . && rm $${package}_*.deb && touch $$package ) || \
			echo "could not fetch $$package: tests that need it are reported as not run"; \
	done

test: venv tools lint ## run every check and the whole test suite; REDIS=real|hostile|dead gives every replica such a Redis
	$(if $(REDIS),TENURE_TEST_REDIS=$(REDIS)) $(BIN)/pytest -n $(JOBS) --dist worksteal

chaos: venv tools ## play every fault scenario and judge what was recorded; SCENARIO=C03 SEED=7 REPEAT=10 AT_ONCE=2 LAYER=proxies
	exec $(BIN)/python -m tests.chaos $(foreach one,$(SCENARIO),--scenario $(one)) $(if $(SEED),--seed $(SEED)) \
		$(if $(LAYER),--layer $(LAYER)) --repeat $(or $(REPEAT),1) --jobs $(or $(AT_ONCE),1)

sim: venv ## simulate a fleet on a real database, decided by a seed; SEED=7, or SEEDS=1..100
	$(BIN)/python -m tests.sim $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),1..20))

model: venv tools ## search the model of the protocol for what must never happen (spin, a C compiler); CASE=NAME QUICK=1
	$(BIN)/python -m tests.model $(CASE) $(if $(QUICK),--quick) --jobs $(or $(AT_ONCE),1)

bench: venv tools ## measure this project beside its peers (installed for it) and write docs/benchmarks.md
	$(BIN)/python -m tests.bench --out docs/benchmarks.md $(BENCH)

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
	$(LOCK) -o tests/bench/peers.txt tests/bench/peers.in
	$(LOCK) -o tests/bench/arq.txt tests/bench/arq.in

clean: ## remove the virtual environment and caches; the database under .tenure stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist
	find supervisor actors schemas tests -name __pycache__ -type d -prune -exec rm -rf {} +
