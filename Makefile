# Each target makes the virtual environment and installs what it needs; the second time that costs nothing.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
INSTALL := @$(BIN)/python tools/install.py
# Tests wait for processes as often as they compute: two for each core.
JOBS   ?= $(shell $(PYTHON) -c 'import os; print(2 * (os.cpu_count() or 1))')
# The tests start hundreds of processes: bytecode is kept also where the caller's shell says not to.
export PYTHONDONTWRITEBYTECODE :=
# Where big things live: outside the clone, shared by all clones of a user.
CACHE  ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/turnwire

.DEFAULT_GOAL := help
.PHONY: help docs docs-serve lock sbom audit release serve test test-slow coverage test-browser test-clients test-engines test-sglang test-ray lint bench bench-peers conformance fuzz clean

help:
	@echo "make serve         run the gateway on the embedded model (http://127.0.0.1:8390)"
	@echo "make test          run the tests"
	@echo "make test-slow     run the long ones: storms of faults, all templates and tokenizers, downloads"
	@echo "make coverage      make test, and which lines it reaches"
	@echo "make test-browser  run the console in Chromium, which is installed where it is missing"
	@echo "make test-clients  run the real, pinned clients against the gateway"
	@echo "make test-engines  run the real engines behind the gateway: vLLM, SGLang, llama.cpp"
	@echo "make test-sglang   only those on SGLang"
	@echo "make test-ray      run replicas of the gateway on a local Ray"
	@echo "make lint          ruff, mypy --strict, import contracts"
	@echo "make docs          build the docs site into build/site; broken links are errors"
	@echo "make release       build wheel and sdist into dist/, check them, write the release notes"
	@echo "make lock          resolve requirements/*.lock anew, with hashes"
	@echo "make sbom          write dist/turnwire.cdx.json, the bill of materials"
	@echo "make audit         ask the package index's advisory database about the locked packages"
	@echo "make fuzz          ten minutes of hostile text through every dialect"
	@echo "make bench         CPU per token of the stream path"
	@echo "make bench-peers   install the peers in the cache, measure all gateways, write README's figures"
	@echo "make conformance   install the peers in the cache, judge all servers, write docs/conformance.md"

$(BIN)/python:
	@$(PYTHON) tools/install.py --venv $(VENV)
	$(INSTALL) --upgrade pip

$(VENV)/.serve: pyproject.toml | $(BIN)/python
	$(INSTALL) --editable ".[server,embedded]"
	@touch $@

# What is locked comes first, with its hashes; then nothing is left to resolve but the project itself. Python compiles
# what it imports; pip would compile all of it.
$(VENV)/.dev: pyproject.toml requirements/dev.lock | $(BIN)/python
	$(INSTALL) --no-compile --require-hashes --requirement requirements/dev.lock
	$(INSTALL) --no-build-isolation --editable ".[server,embedded,dev,docs]"
	@touch $@ $(VENV)/.serve

serve: $(VENV)/.serve
	$(BIN)/turnwire serve $(ARGS)

test: $(VENV)/.dev
	$(BIN)/pytest -n $(JOBS) --dist worksteal -m "not slow and not browser and not clients and not engines and not ray" $(ARGS)

test-slow: $(VENV)/.dev
	$(BIN)/pytest -n auto --dist worksteal -m slow $(ARGS)
	TURNWIRE_EXAMPLES=100 $(BIN)/pytest -n auto -k "laws_on or any_value" tests/parsers/test_laws.py tests/parsers/test_markup_in_values.py

coverage: $(VENV)/.dev
	$(BIN)/pytest -n auto -m "not browser and not clients and not engines and not ray" --cov --cov-report=term:skip-covered $(ARGS)

test-browser: $(VENV)/.dev
	$(BIN)/python tools/browser.py install
	$(BIN)/pytest -m browser tests/console $(ARGS)

test-clients: $(VENV)/.dev
	$(BIN)/python tools/clients.py install
	$(BIN)/python tools/browser.py install
	$(BIN)/pytest -n 2 -m clients tests/clients $(ARGS)

test-engines: $(VENV)/.dev
	$(BIN)/python tools/engines.py install vllm sglang
	$(BIN)/pytest -m engines tests/engines_real $(ARGS)

test-sglang: $(VENV)/.dev
	$(BIN)/python tools/engines.py install sglang
	$(BIN)/pytest -m sglang tests/engines_real $(ARGS)

test-ray: $(VENV)/.dev
	$(INSTALL) --editable ".[server,embedded,dev,ray]"
	$(BIN)/python tools/clients.py install claude codex
	$(BIN)/pytest -m ray tests/ray $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

docs-serve: $(VENV)/.dev
	$(BIN)/mkdocs serve

lock: $(VENV)/.dev
	$(BIN)/pip install --quiet uv
	$(BIN)/python tools/lock.py

sbom: $(VENV)/.dev
	mkdir -p dist
	$(BIN)/python tools/supply_chain.py sbom > dist/turnwire.cdx.json

audit: $(VENV)/.dev
	$(BIN)/pip install --quiet pip-audit
	$(BIN)/pip-audit --strict --require-hashes --disable-pip --requirement requirements/server.lock

release: $(VENV)/.dev
	$(BIN)/python tools/release.py

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks stream $(ARGS)

# Everything that README's table of peers is made from; ARGS=--quick takes about 25 minutes on two cores.
bench-peers: $(VENV)/.dev
	$(BIN)/python -m benchmarks install
	$(BIN)/python -m benchmarks peers $(ARGS)
	$(BIN)/python -m benchmarks figures

conformance: $(VENV)/.dev
	$(BIN)/python -m benchmarks install
	$(BIN)/python tools/clients.py install claude codex
	$(BIN)/python -m benchmarks conformance --save $(ARGS)

fuzz: $(VENV)/.dev
	$(BIN)/python tests/parsers/fuzz.py --minutes 10 $(ARGS)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
