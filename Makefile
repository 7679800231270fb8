# Tenure: `make run` starts it, `make test` checks it. Nothing is needed beyond Python >= 3.11, make and a package index.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
JOBS   ?= 5
PYTEST  = $(if $(REDIS),TENURE_TEST_REDIS=$(REDIS)) $(BIN)/pytest
INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation

# uv reads no pip configuration, so the index that pip is told to use is handed on.
LOCK = UV_DEFAULT_INDEX="$${UV_DEFAULT_INDEX:-$$($(BIN)/pip config get global.index-url 2>/dev/null)}" \
	$(VENV)/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header --no-annotate

# Where this is set, each process of a test run compiles every module again: half of its start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv run quick test chaos sim model bench tools lint ruff types contracts unused format hooks lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

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
WANTED = git subversion jdupes chromium-headless-shell iproute2 nftables spin
chaos: WANTED += pgbouncer faketime strace
bench: WANTED += rmlint fdupes rdfind b3sum
# Not installed but unpacked: these packages would start a server, or are the library of one that would.
UNPACK   = prometheus openssh-server libwrap0
UNPACKED = $(VENV)/unpacked
tools: ## install or unpack the system's packages that tests use, where this user may
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

# Run tests with `make lint` beside them. The tests' output comes first. Lint's comes last: one line if it passed, all of
# it if it failed. Lint has no MAKEFLAGS, so that it needs no place among the jobs of this make, and a session of its own,
# so that one signal ends all of it.
MAKE_LINT = MAKEFLAGS= setsid $(LOW) $(MAKE_COMMAND) $(MAKEOVERRIDES) --no-print-directory --keep-going --jobs=2 --output-sync lint
define beside_lint
log=$(VENV)/lint.log; $(MAKE_LINT) >$$log 2>&1 & lint=$$!; trap 'kill -- -$$lint' EXIT; trap 'exit 130' INT TERM; \
$(1); tests=$$?; wait $$lint; lint=$$?; trap - EXIT; \
if [ $$lint = 0 ]; then echo "lint passed"; else echo; echo "lint FAILED:"; cat $$log; echo; echo "lint FAILED (above)"; fi; \
exit $$((tests | lint))
endef

# Compiling the tests takes 13 s, and in a fresh clone each test process would do it by itself.
COMPILE = [ -e tests/unit/__pycache__ ] || $(PYTEST) --collect-only -qq >/dev/null

quick: venv ## run lint, unit tests and property tests: the check for every edit
	@$(call beside_lint,$(PYTEST) -q tests/unit tests/property)

# Some of these tests measure time: lint has the lower priority.
test: LOW = nice
test: venv tools ## run lint and every test, or with AREA="scm media" the tests of those areas; REDIS=real|hostile|dead
ifdef AREA
	@files=$$($(BIN)/python -m tests.support.areas $(AREA)) && $(PYTEST) -n $(JOBS) --dist worksteal $$files
else
	@$(call beside_lint,$(COMPILE); $(PYTEST) -n $(JOBS) --dist worksteal)
endif

chaos: venv tools ## play every fault scenario and judge what was recorded; SCENARIO=C03 SEED=7 REPEAT=10 AT_ONCE=2 LAYER=proxies
	exec $(BIN)/python -m tests.chaos $(foreach one,$(SCENARIO),--scenario $(one)) $(if $(SEED),--seed $(SEED)) \
		$(if $(LAYER),--layer $(LAYER)) --repeat $(or $(REPEAT),1) --jobs $(or $(AT_ONCE),1)

sim: venv ## simulate a fleet on a real database, decided by a seed; SEED=7, or SEEDS=1..100
	$(BIN)/python -m tests.sim $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),1..20))

model: venv tools ## search the model of the protocol for what must never happen (spin, a C compiler); CASE=NAME QUICK=1
	$(BIN)/python -m tests.model $(CASE) $(if $(QUICK),--quick) --jobs $(or $(AT_ONCE),1)

bench: venv tools ## measure this project beside its peers (installed for it) and write docs/benchmarks.md
	$(BIN)/python -m tests.bench --out docs/benchmarks.md $(BENCH)

lint: ruff types contracts unused ## run ruff, mypy, the import contracts and vulture

ruff: venv ## check rules and format with ruff
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: venv ## check types with mypy (strict)
	$(BIN)/mypy

contracts: venv ## check that imports keep the contracts in pyproject.toml
	$(BIN)/lint-imports --no-logo

# vulture exits with 3 when it found something. pydantic reads the fields of the API's models.
unused: venv ## find code that nothing uses, with vulture; pyproject.toml lists the exceptions
	$(BIN)/vulture >$(VENV)/unused.txt || [ $$? = 3 ]
	@! grep -v '/api/.*: unused variable' $(VENV)/unused.txt

format: venv ## format the code and apply the safe fixes
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

hooks: venv ## install the git hooks: format, rules, dead code, and the form of a commit message
	$(BIN)/pre-commit install

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
