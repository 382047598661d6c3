# The front door. Every target sets up what it needs; nothing needs root but what says so.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
ENGINE := $(VENV)/.engine
# A new seed each time; `make test SEED=...` repeats a run.
SEED   := $(or $(SEED),$(shell od -An -N4 -tu4 /dev/urandom | tr -d ' '))
# One more than there are cores: some tests wait. `make test` has another one, because live tests wait for most of their time.
JOBS   ?= $(shell expr $$(nproc 2>/dev/null || echo 2) + 1)

# Compiled modules are kept and used again, whatever the environment says: the tests start twice as fast.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/pycache

# Branch coverage of the pure layers (pyproject.toml names them), in per cent: it may only grow.
PURE_COVERAGE := 99

.PHONY: help setup check test demo docs bench soak fuzz release shots
.DEFAULT_GOAL := check

help:
	@echo 'make setup    a virtual environment in $(VENV): with uv when there is one, else venv and pip'
	@echo 'make check    style, types, layers, fast tests: under a minute;  make check WING=predict  one wing: under 20 s'
	@echo 'make test     everything, with recorded decisions, live tests, coverage: about 10 minutes'
	@echo 'make demo     the main commands on examples and on this machine'
	@echo 'make docs     the documentation site, strict, with the reference from docstrings'
	@echo 'make bench    time what must be fast;  make fuzz  broken input;  make soak  laws with many examples'
	@echo 'make release VERSION=1.2.3   a version, its changelog and its packages'
	@echo '$(BIN)/python -m tools       everything else: demonstrations, measurements, what is generated'

setup: $(STAMP)

# $(call install,WHAT,MORE): a virtual environment with WHAT and MORE in it, by uv when it is there (2 s), else by venv and
# pip (20 s). The tools of developers are read from pyproject.toml, because pip knows no dependency groups before 25.1.
DEV_TOOLS := import shlex, tomllib; print(*map(shlex.quote, tomllib.load(open('pyproject.toml', 'rb'))['dependency-groups']['dev']))
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'nodewright needs Python 3.11 or newer; make PYTHON=... names another one' >&2; exit 1; }
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv -q --allow-existing --python $(PYTHON) $(VENV) && uv pip install -q --python $(BIN)/python -e '$(1)' $(2); \
	else \
	  { $(PYTHON) -m venv $(VENV) || { echo 'venv is missing: on Debian it is the package python3-venv' >&2; exit 1; }; } && \
	  $(BIN)/python -m pip install -q --disable-pip-version-check -e '$(1)' $(2); \
	fi
	@touch $@
endef

# $(call add,WHAT): WHAT beside what is there, for a target that few people need.
add = if command -v uv >/dev/null 2>&1; then uv pip install -q --python $(BIN)/python '$(1)'; \
  else $(BIN)/python -m pip install -q --disable-pip-version-check '$(1)'; fi

$(STAMP): pyproject.toml src/nodewright/version.py
	$(call install,.,$(shell $(PYTHON) -c "$(DEV_TOOLS)" 2>/dev/null))

# What users install: the engine and its three dependencies.
$(ENGINE): pyproject.toml
	$(call install,.)

# Types are checked while the tests run; each target prints its output when it is done. WING=NAME checks that wing alone.
check: $(STAMP)
	@$(MAKE) --no-print-directory --jobs=2 $(WHOLE) check-style check-types check-layers check-tests WING=$(WING)

WHOLE := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

.PHONY: check-style check-types check-layers check-tests compile-tests
STYLED := $(if $(WING),src/nodewright/$(WING) tests/unit/$(WING),.)
check-style:
	$(BIN)/ruff check $(STYLED)
	$(BIN)/ruff format --check $(STYLED)

check-types:
	$(BIN)/mypy $(if $(WING),$(STYLED))

check-layers:
	$(BIN)/lint-imports --no-cache

# A worker keeps to neighbouring tests: what they share is made once. Recorded decisions, laws, simulations and live tests
# are left to `make test`.
FAST := $(if $(WING),tests/unit/$(WING),$(foreach each,conformance laws live simulation vm,--ignore=tests/$(each)))
check-tests:
	$(BIN)/pytest -q -n $(JOBS) --dist worksteal -m "not slow and not live" $(FAST)

# Errors are those of the tests themselves, which tell them.
compile-tests:
	@$(BIN)/pytest --collect-only -qq >/dev/null || true

# Packages for live tests: installed as root with apt and a network; without them those tests are skipped with the reason.
LIVE_PACKAGES := qemu-system-x86 e2fsprogs lz4 containerd runc busybox-static chromium
LIVE_COMMANDS := qemu-system-x86_64 mke2fs lz4 containerd runc busybox chromium

.PHONY: live-packages
live-packages:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && \
	  ! ( for each in $(LIVE_COMMANDS); do command -v $$each || exit 1; done ) >/dev/null 2>&1; then \
	  { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $(LIVE_PACKAGES); } \
	    >/dev/null 2>&1 || echo 'no network, or no packages: tests in a virtual machine and with containers are skipped' >&2; \
	fi

# Types are checked on one core, the rest on the other, and they may last into the tests, which wait now and then.
test:
	@$(MAKE) --no-print-directory --jobs=2 setup live-packages
	@echo "laws with seed $(SEED); make test SEED=$(SEED) repeats them"
	@$(MAKE) --no-print-directory --jobs=2 SEED=$(SEED) check-types all-tests

# Tests are compiled once before, not by each worker for itself.
.PHONY: all-tests
all-tests: check-style check-layers compile-tests
	FAULT_SEED=$(SEED) $(BIN)/pytest -n $$(expr $(JOBS) + 1) --dist worksteal --hypothesis-profile=full --hypothesis-seed=$(SEED) --cov --cov-report=
	$(BIN)/coverage report --skip-covered --show-missing --fail-under=$(PURE_COVERAGE)

# The engine alone suffices if nothing else has been set up.
demo: $(if $(wildcard $(STAMP)),$(STAMP),$(ENGINE))
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh tools/demo.sh

# What the commands print, into docs/shots; `python -m tools regenerate` writes everything that is generated.
shots: $(STAMP)
	$(BIN)/python -m tools shots

docs: $(STAMP)
	$(BIN)/python -m tools reference
	@$(BIN)/python -c 'import material' 2>/dev/null || $(call add,mkdocs-material==9.8.1)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(STAMP)
	@mkdir -p build
	NODEWRIGHT_BENCH_LARGE=yes $(BIN)/pytest benchmarks --benchmark-only --benchmark-json=build/bench.json --benchmark-columns=min,median,rounds
	$(BIN)/python -m tools benchmarks

fuzz: $(STAMP)
	$(BIN)/python -m tools fuzz --seconds $(or $(SECONDS),60) --count $(or $(COUNT),0) --minutes $(or $(MINUTES),0) --seed $(SEED)

# Laws with very many examples, all slow tests; its figures are in docs/figures afterwards.
soak: $(STAMP)
	$(BIN)/python -m tools soak --seed $(SEED) --jobs $(JOBS)

# VERSION=1.2.3: changes/ into CHANGELOG.md, and wheel and sdist into dist/.
release: $(STAMP)
	$(BIN)/python -m tools.release $(VERSION)
