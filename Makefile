# Needs only Python 3.11 or later. The environment .venv is created on first use.
PYTHON ?= python3
# Installed first, so that the dependencies do not choose another build of torch.
TORCH ?= torch==2.13.0
SCAN ?=

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq
READY := .venv/.ready
PARALLEL := -n auto --dist loadfile

.PHONY: help demo test slow lint docs bench fuzz lock audit clean

help:
	@echo "make demo    register two scans of a synthetic room; results in demo/"
	@echo "make test    style, types, import directions and the quick tests"
	@echo "make slow    the slow tests: whole pipelines, browsers, faults, load"
	@echo "make lint    style, types and import directions alone"
	@echo "make docs    the documentation site, into site/"
	@echo "make bench   time the CPU code; SCAN=file uses your scan"
	@echo "make fuzz    hostile files for every reader, one minute"
	@echo "make lock    write requirements-dev.lock: development packages by version and hash"
	@echo "make audit   look the lock up in the public vulnerability database"
	@echo "make clean   remove everything that make created, the environment too"

demo: $(READY)
	@$(BIN)/wsdesc demo --out demo

test: lint
	@$(BIN)/python -m pytest -m "not slow" $(PARALLEL)

slow: $(READY)
	@$(BIN)/python -m pytest -m slow $(PARALLEL)

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache --no-logo > .venv/imports.log || { cat .venv/imports.log; exit 1; }

docs: $(READY)
	@$(PIP) --editable ".[docs]"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "site/index.html"

bench: $(READY)
	@$(BIN)/python -m benchmarks.cpu $(SCAN)

fuzz: $(READY)
	@$(PIP) --editable ".[fuzz]"
	@$(BIN)/python -m benchmarks.fuzz --together 60 --seed 1

lock: $(READY)
	@$(PIP) --editable ".[dev,fuzz]"
	@$(BIN)/python .ci/lock.py "$(TORCH)"

# In its own environment: pip-audit is not a dependency.
audit:
	@$(PYTHON) -m venv .venv/audit
	@.venv/audit/bin/python -m pip --disable-pip-version-check install -qq pip-audit
	@.venv/audit/bin/pip-audit --strict --no-deps --disable-pip -r requirements-dev.lock

clean:
	@rm -rf .venv demo site dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "needs Python 3.11 or later: make PYTHON=…")'
	@$(BIN)/python -m pip --version > /dev/null 2>&1 || $(PYTHON) -m venv .venv
	@echo "installing into .venv: $(TORCH), then wsdesc and its dependencies …"
	@$(PIP) "$(TORCH)"
	@$(PIP) --editable ".[dev]"
	@touch $@
