# Works on a machine with nothing but Python 3.11 or later: the environment is made on first use.
PYTHON ?= python3
# Installed before everything else, so that the choice of torch is yours and not the dependencies'.
TORCH ?= torch==2.13.0
SCAN ?=

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq
READY := .venv/.ready

.PHONY: help demo test slow lint docs bench fuzz lock audit clean

help:
	@echo "make demo    register two scans of a synthetic room; results in demo/"
	@echo "make test    style, types, import directions and the quick tests"
	@echo "make slow    the slow tests: whole pipelines, browsers, faults, load"
	@echo "make lint    style, types and import directions alone"
	@echo "make docs    the documentation site, into site/"
	@echo "make bench   time the CPU code against its bounds; SCAN=file for a scan of yours"
	@echo "make fuzz    feed every reader hostile files for a minute; python -m benchmarks.fuzz for 10 minutes each"
	@echo "make lock    write requirements-dev.lock: what the tests run with, by version and hash"
	@echo "make audit   ask the public database of vulnerabilities about all that is in the lock"
	@echo "make clean   remove what was made, the environment too"

demo: $(READY)
	@$(BIN)/wsdesc demo --out demo

test: lint
	@$(BIN)/python -m pytest -m "not slow"

slow: $(READY)
	@$(BIN)/python -m pytest -m slow

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

# In an environment of its own: what audits the dependencies is not one of them.
audit:
	@$(PYTHON) -m venv .venv/audit
	@.venv/audit/bin/python -m pip --disable-pip-version-check install -qq pip-audit
	@.venv/audit/bin/pip-audit --strict --no-deps --disable-pip -r requirements-dev.lock

clean:
	@rm -rf .venv demo site dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	@find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "needs Python 3.11 or later: make PYTHON=…")'
	@$(BIN)/python -m pip --version > /dev/null 2>&1 || $(PYTHON) -m venv .venv
	@echo "installing into .venv: $(TORCH), then wsdesc and its dependencies …"
	@$(PIP) "$(TORCH)"
	@$(PIP) --editable ".[dev]"
	@touch $@
