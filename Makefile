# `make` prepares .venv from the lock; every other target uses it. `make help` lists them.
# Give more arguments with ARGS: make test ARGS='-k escrow', make up ARGS='--hosts 4x8', make bench ARGS=ranker.

PYTHON ?= python3.11
ARGS ?=
SEEDS ?= 1000
SEED ?=
MINUTES ?= 10
SBOM ?= sbom.json
AUDIT ?=
VENV := .venv
BIN := $(VENV)/bin
LOCKED := $(VENV)/.locked
READY := $(VENV)/.ready
PACKAGES := tenure services simulator
FUZZED := $(wildcard tests/property/test_hostile_*.py tests/contract/test_hostile_*.py) \
	tests/property/test_signal_parsers.py tests/property/test_trace_import.py
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
PROTOS := $(wildcard proto/tenure/v1/*.proto)
GENERATED ?= .

.DEFAULT_GOAL := install
.DELETE_ON_ERROR:
.PHONY: install help demo up test sim-soak fuzz check lint types imports protos architecture bench proto api dashboards pictures \
	lock sbom audit clean

## install      .venv with everything of requirements.lock, and the command .venv/bin/tenure (the default)
install: $(READY)

$(LOCKED): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null || { \
		echo "make: $(PYTHON) is not Python 3.11; install that, or name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "1/3 a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { \
		echo "make: $(PYTHON) cannot make one; on Debian and Ubuntu: apt install python3.11-venv" >&2; exit 1; }
	@echo "2/3 the packages of requirements.lock, each checked against its hash (1.4 GB on disk)"
	@$(PIP) install --require-hashes --requirement requirements.lock
	@touch $@

$(READY): $(LOCKED) pyproject.toml
	@echo "3/3 tenure itself"
	@PYTHONWARNINGS=ignore $(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@
	@echo "ready: $(BIN)/tenure --help, make demo"

## help         this list
help:
	@sed -n 's/^## /  make /p' $(MAKEFILE_LIST)

## demo         real jobs of four budgets share eight virtual hosts of eight GPUs; under three minutes
demo: $(READY)
	@$(BIN)/python -m examples.demo $(ARGS)

## up           the whole system on this machine, until Ctrl-C
up: $(READY)
	@$(BIN)/tenure up $(ARGS)

## test         every test
test: $(READY)
	@$(BIN)/python -m pytest -n auto --dist loadfile $(ARGS)

## sim-soak     many simulated systems with faults: make sim-soak SEEDS=10000; one with its story: SEED=17
sim-soak: $(READY)
	@$(BIN)/python -m tests.simulation.whole.seeds $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(ARGS)

## fuzz         hostile input for MINUTES (10) at low priority: files, signals, calls, facts; what fails is kept in .hypothesis
fuzz: $(READY)
	@end=$$(( $$(date +%s) + 60 * $(MINUTES) )); round=0; \
		while [ "$$(date +%s)" -lt "$$end" ]; do \
			round=$$(( round + 1 )); echo "round $$round, $$(( end - $$(date +%s) )) s left"; \
			TENURE_FUZZ_EXAMPLES=200 nice -n 19 $(BIN)/python -m pytest -x --timeout=1800 --hypothesis-profile=fuzz $(FUZZED) $(ARGS) || exit 1; \
		done

## check        lint, types, import contracts, protos, sizes and words
check: lint types imports protos architecture

lint: $(READY)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo "not formatted: ruff format --diff . shows where" >&2; exit 1; }

types: $(READY)
	@$(BIN)/mypy --no-error-summary

imports: $(READY)
	@said=$$(PYTHONPATH=. $(BIN)/lint-imports --no-logo) || { echo "$$said" >&2; exit 1; }

# What is committed under tenure/v1 must be what the pinned generator makes of proto/.
protos: $(READY)
	@$(BIN)/buf lint proto
	@made=$$(mktemp -d) && trap 'rm -rf "$$made"' EXIT && \
		$(MAKE) --no-print-directory proto GENERATED="$$made" && \
		{ diff -r -x __init__.py -x __pycache__ "$$made/tenure/v1" tenure/v1 || { echo "run make proto" >&2; exit 1; }; }

architecture: $(READY)
	@$(BIN)/python -m pytest --no-header tests/architecture

## bench        measure, and rewrite the figures in docs/benchmarks.md
bench: $(READY)
	@$(BIN)/python -m tests.bench.report $(ARGS)

## proto        make tenure/v1 from proto/ again; then make api
proto: $(READY)
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m grpc_tools.protoc --proto_path=proto \
		--python_out=$(GENERATED) --grpc_python_out=$(GENERATED) \
		--mypy_out=quiet:$(GENERATED) --mypy_grpc_out=quiet:$(GENERATED) $(PROTOS)

## api          the reference in docs/api.md from proto/ again
api: $(READY)
	@$(BIN)/python -m tests.checks.api_page

## dashboards   Grafana's JSON and docs/dashboards.md from deploy/grafana/ again
dashboards: $(READY)
	@$(BIN)/python -m deploy.grafana

## pictures     each dashboard on a simulated month as an image, in build/dashboards
pictures: $(READY)
	@$(BIN)/python -m pytest tests/contract/dashboards/test_month.py -k person $(ARGS) && ls build/dashboards/*.png

## lock         resolve the dependencies of pyproject.toml again into requirements.lock
lock: $(READY)
	@$(BIN)/pip-compile --quiet --extra dev --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url \
		--no-emit-find-links --no-emit-trusted-host --output-file requirements.lock pyproject.toml

## sbom         what it is made of, as CycloneDX, from requirements.lock: sbom.json, the same bytes for the same lock
sbom: $(READY)
	@PYTHONWARNINGS=ignore $(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible \
		--short-PURLs --output-format JSON --output-file $(SBOM) requirements.lock
	@echo "wrote $(SBOM)"

## audit        whether a version in requirements.lock is known to be vulnerable: asks the index (AUDIT='--service osv': OSV)
audit: $(READY)
	@said=$$(mktemp) && trap 'rm -f "$$said"' EXIT && \
		if $(BIN)/pip-audit --requirement requirements.lock --require-hashes --disable-pip --progress-spinner off \
			$(AUDIT) >"$$said" 2>&1; then cat "$$said"; \
		elif grep -q Traceback "$$said"; then \
			echo "make: the database of vulnerabilities cannot be asked, so nothing is known: $$(tail -n 1 "$$said" | cut -c 1-300)" >&2; \
			echo "make: try again where the package index can be reached, or AUDIT='--service osv'" >&2; exit 2; \
		else cat "$$said" >&2; exit 1; fi

## clean        remove what make and the tools have left, .venv too
clean:
	@rm -rf $(VENV) $(SBOM) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find $(PACKAGES) tests -name __pycache__ -type d -prune -exec rm -rf {} +
