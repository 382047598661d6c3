# The front door. Every target sets up what it needs; nothing needs root but what says so.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready

.PHONY: setup check test demo shots bench soak format clean
.DEFAULT_GOAL := check

setup: $(STAMP)

# uv when it is there (2 s), else venv + pip (20 s).
$(STAMP): pyproject.toml
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv -q --allow-existing --python $(PYTHON) $(VENV) && uv pip install -q --python $(BIN)/python -e '.[dev]'; \
	else \
	  $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'; \
	fi
	@touch $@

# Under a minute: style, types, floors, fast tests.
check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/pytest -q -n 2 -m "not slow and not live"

format: $(STAMP)
	$(BIN)/ruff check --fix-only -q . || true
	$(BIN)/ruff format -q .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis .benchmarks
