# Two commands are enough: `make setup`, then `make demo`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.crannog-setup
PAGES_STAMP := $(VENV)/.crannog-pages
PAGES := $(shell find web -path web/node_modules -prune -o -type f -print)
LOCK := uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header --quiet

.DEFAULT_GOAL := help
.PHONY: help setup pages demo serve test test-fast test-slow coverage bench bench-sustained bench-growth chaos fuzz audit dist docs lint lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) $(PAGES_STAMP) ## Set everything up: virtual environment, packages, Java, Delta jars, web pages (quick when done before)

$(STAMP): requirements/build.txt requirements/all.txt pyproject.toml scripts/setup-java
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "Crannog needs Python 3.11 or later; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || echo missing). Try: make setup PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python && $(BIN)/python -m pip --version >/dev/null 2>&1 || \
	  $(PYTHON) -m venv --clear $(VENV) || \
	  { echo "$(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/build.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-build-isolation -r requirements/all.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	scripts/setup-java $(BIN)/python
	$(BIN)/python -m crannog.spark.jars
	@touch $@

# Where they cannot be built, setup says so and goes on.
$(PAGES_STAMP): $(STAMP) $(PAGES) scripts/build-pages
	scripts/build-pages $(BIN)/python --optional
	scripts/setup-chromium
	@touch $@

pages: ## Build the web pages (needs the network the first time)
	scripts/build-pages $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))

demo: setup ## Show what Crannog does, on data made up on the spot
	$(BIN)/crannog demo

serve: setup ## Run the server: HTTP API, pages, OTLP
	$(BIN)/crannog serve

test: setup ## Run the tests
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations=15

test-fast: setup ## Run the tests that start neither Spark nor another process, in two minutes: for every save
	$(BIN)/python -m pytest --fast -n 2 --dist worksteal -q

test-slow: setup ## Run the tests that take long
	$(BIN)/python -m pytest -m slow

coverage: setup ## Run the tests and print the coverage of each package; TESTS=tests/engine for some of them
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -q --cov --cov-report= $(TESTS)
	@$(BIN)/python -m coverage json -q -o - | $(BIN)/python tools/coverage_table.py

.venv-peers/.done: requirements/peers.txt
	$(PYTHON) -m venv --clear .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/peers.txt
	@touch $@

bench: setup .venv-peers/.done ## Measure the speed, and that of the peers
	$(BIN)/python bench/run.py

bench-sustained: setup ## Measure a server under load for twenty minutes (spans, rows, upserts)
	CRANNOG_BENCH_MINUTES=20 $(BIN)/python bench/run.py sustained

bench-growth: setup ## Measure reads of 1, 10 and 100 million spans (hours); SPANS=10000000 for less
	$(BIN)/python bench/span_growth.py --spans $(or $(SPANS),100000000)

chaos: setup ## Kill processes for hours and check that nothing is lost; KILLS=10000 SEED=7 PLACE=bucket CLIENTS=3
	PYTHONPATH=tests/chaos:tests/support $(BIN)/python -m chaos_run --kills $(or $(KILLS),10000) --clients $(or $(CLIENTS),3) \
	  --place $(or $(PLACE),folder) --report $(or $(REPORT),chaos-report.json) $(if $(SEED),--seed $(SEED))

# Beside the virtual environment, which stays as it is.
.fuzz/.done: requirements/fuzz.txt $(STAMP)
	rm -rf .fuzz/atheris* && mkdir -p .fuzz
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --target .fuzz -r requirements/fuzz.txt
	@touch $@

fuzz: setup .fuzz/.done ## Fuzz what reads bytes of strangers, with coverage; TARGET=sql SECONDS=60, KEEP=1 adds to the corpus of the tests
	PYTHONPATH=.fuzz:tests/fuzz:tests/support $(BIN)/python tests/fuzz/fuzz.py --seconds $(or $(SECONDS),60) $(if $(KEEP),--keep) $(TARGET)

.venv-audit/.done: requirements/audit.txt
	$(PYTHON) -m venv --clear .venv-audit
	.venv-audit/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/audit.txt || \
	  { echo "pip-audit cannot be installed here: nothing was checked" >&2; exit 1; }
	@touch $@

audit: setup .venv-audit/.done ## Check the licences of all pinned packages, and look up their known vulnerabilities (needs the network)
	PYTHONPATH=tools $(BIN)/python -m supply_chain.licences
	PYTHONPATH=tools $(BIN)/python -m supply_chain.vulnerabilities .venv-audit/bin/pip-audit

dist: setup ## Build the wheel, with the web pages, and its SBOM (CycloneDX) into dist/
	@test -d src/crannog/server/pages/built || echo "the wheel will have no web pages; make pages builds them" >&2
	rm -rf build dist
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w dist .
	PYTHONPATH=tools $(BIN)/python -m supply_chain.sbom dist

docs: setup ## Build the documentation into site/, its reference pages and the routes for the web pages from the code
	$(BIN)/python -m crannog.settings > docs/settings.md.new && mv docs/settings.md.new docs/settings.md
	PYTHONPATH=tools $(BIN)/python -m reference --write docs/reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "open site/index.html; to search in it as well: python3 -m http.server -d site"

lint: setup ## Check style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src
	MYPYPATH=src:bench:tests/support $(BIN)/mypy --config-file= --disable-error-code=misc --ignore-missing-imports --follow-imports=silent bench/*.py
	$(BIN)/lint-imports
	$(BIN)/python tools/check_words.py
	PYTHONPATH=tools $(BIN)/python -m supply_chain.licences
	$(BIN)/codespell src tests tools bench docs web/src web/README.md *.md Makefile
	@if [ -x web/node_modules/.bin/tsc ]; then cd web && npm run --silent check; else echo "The pages are not checked: make pages installs what that needs"; fi

lock: ## Pin the newest versions that fit together (needs uv)
	$(LOCK) --upgrade requirements/all.in -o requirements/all.txt
	$(LOCK) requirements/build.in -c requirements/all.txt -o requirements/build.txt
	$(LOCK) requirements/peers.in -o requirements/peers.txt
	$(LOCK) requirements/fuzz.in -o requirements/fuzz.txt
	$(LOCK) --upgrade requirements/audit.in -o requirements/audit.txt
	$(LOCK) --upgrade requirements/node.in -o requirements/node.txt

clean: ## Remove the virtual environment, caches and what demo and bench left
	rm -rf $(VENV) .venv-audit web/node_modules src/crannog/server/pages/built build dist site src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage .coverage.*
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
