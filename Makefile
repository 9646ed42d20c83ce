# Arguments pass through: make train ARGS="model=vit_b16 trainer.max_epochs=1"
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
ARGS ?=
# of the tests: a process for each core, at most 4
PARALLEL := -n auto --maxprocesses 4 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help setup train check test test-room test-all test-exhaustive faults lint format docs notebooks sweep evaluate export report serve lock clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-15s %s\n", $$1, $$2}'

setup: .venv/ready ## make the environment in .venv, from hash-locked requirements

.venv/libraries: requirements.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check uv==0.13.8
	$(BIN)/uv pip install -q -p $(BIN)/python --compile-bytecode --require-hashes -r requirements.txt
	@touch $@

.venv/ready: .venv/libraries pyproject.toml
	$(BIN)/uv pip install -q -p $(BIN)/python --no-deps --no-build-isolation -e . -e runtime
	$(BIN)/python -m compileall -q src
	@touch $@

train: setup ## train; on handwritten digits unless ARGS say otherwise
	$(BIN)/python src/train.py $(ARGS)

check: setup ## would it train, and what would it cost: make check ARGS="model=vit_b16 data=cifar10"
	$(BIN)/python src/check.py $(ARGS)

test: setup ## every test but the slow ones (a few minutes)
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow and not gpu and not exhaustive" $(ARGS)

test-room: setup ## the fast tests of one room after an edit, in seconds: make test-room ROOM=layers
	@test -d "tests/$(ROOM)" -a -n "$(ROOM)" || { echo "no tests/$(ROOM); ROOM= is a folder of src/vitlab, as layers or data/images"; exit 2; }
	$(BIN)/python -m pytest -q $(PARALLEL) -m "not slow and not gpu and not exhaustive" tests/$(ROOM) $(ARGS)

test-all: setup ## every test, with coverage of src/
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(PARALLEL) -m "not gpu and not exhaustive" $(ARGS)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --skip-covered --fail-under=90

test-exhaustive: setup ## the long walks: random kills, every damage; at most an hour
	timeout --signal=INT 3600 $(BIN)/python -m pytest $(PARALLEL) -m exhaustive $(ARGS)

faults: setup ## the committed list of faults on runs and jobs, in an hour or two; continued if interrupted: build/faults
	$(BIN)/python tests/faults/play.py build/faults --manifest=experiments/faults/manifest.jsonl $(ARGS)

lint: setup ## ruff and mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: setup ## let ruff rewrite what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: .venv-docs/ready ## README and docs as a site: site/index.html
	.venv-docs/bin/python docs/make_pages.py build/pages
	.venv-docs/bin/zensical build --strict --clean # its cache does not see that a docstring has changed
	@echo "site/index.html; with its search: python -m http.server -b 127.0.0.1 -d site"

notebooks: setup ## run the notebooks of docs, and keep what they give
	$(BIN)/python docs/run_notebooks.py $(ARGS)

.venv-docs/ready: requirements-docs.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-docs.txt
	@touch $@

sweep: setup ## a sweep on the digits that is killed and goes on, in two minutes
	$(BIN)/python experiments/killed_sweep.py $(ARGS)

evaluate: setup ## score a finished run: make evaluate ARGS="run=runs/NAME/TIME split=test"
	$(BIN)/python src/evaluate.py $(ARGS)

export: setup ## export a finished run as a bundle: make export ARGS="run=latest output=DIR"
	$(BIN)/python src/export.py format=bundle $(ARGS)

report: setup ## a page about finished runs: make report ARGS="sweep=NAME"; of the newest run without ARGS
	$(BIN)/python src/report.py $(or $(ARGS),'runs=[latest]')

serve: setup ## serve a bundle, with a page to try it: make serve ARGS="bundle=DIR"
	$(BIN)/python src/serve.py $(ARGS)

COMPILE = $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url

lock: setup ## write requirements.txt and requirements-docs.txt anew from pyproject.toml
	$(COMPILE) --extra dev pyproject.toml -o requirements.txt
	$(BIN)/python -c "import tomllib; extras = tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']; \
		print(*extras['docs'], sep='\n')" | $(COMPILE) - -o requirements-docs.txt

clean: ## remove caches and build products; runs/ and data/ stay
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage* dist build site
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
