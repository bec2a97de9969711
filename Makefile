# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test test-all suite lint types format docs site bench clean

demo: $(READY)
	$(BIN)/dpmac demo --out demo

# Types are checked while the tests run; files of tests go to two processes in the order of tests/conftest.py.
PYTEST := $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

test: lint
	$(MAKE) --jobs 2 types suite

test-all: lint types
	$(PYTEST)

suite: $(READY)
	$(PYTEST) -m "not large"

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/pyright

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The documentation as a site, in site/; its pages open from a disk, but for search.
docs: $(READY)
	$(BIN)/mkdocs build --strict

# The same with search, at http://127.0.0.1:8000 until Ctrl-C.
site: docs
	$(BIN)/python -m http.server --directory site --bind 127.0.0.1 8000

# Speed beside others, who bring torch along: an environment of its own.
bench: .venv-bench/.ready
	.venv-bench/bin/dpmac bench env

.venv-bench/.ready: pyproject.toml benchmarks/constraints.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/pip install --quiet --disable-pip-version-check --constraint benchmarks/constraints.txt --editable '.[bench]'
	touch $@

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv .venv-bench demo site build
