# Every target sets up .venv in the checkout first. `make` alone lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help demo demo-pipeline test check lint types generated unit integration deploy jars brokers pulsar spark bench bench-pipeline load
.PHONY: generate image sbom lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.runtime ## Run an embedded broker, the proxy and a storm of clients; ends with a table
	$(BIN)/python -m proxy demo $(ARGS)

# Spark computes while the tests of Pulsar wait: side by side, the output of each in one piece, a failure of either counts.
test: $(VENV)/.dev ## Run every check and every test (needs a JDK 17 and Maven)
	@$(BIN)/python -m tests.support.tools --forget
	@$(BIN)/python -m tests.support.stages --forget
	@$(BIN)/python -m tests.pulsar.harness --check
	@set -e; for stage in check unit integration deploy; do \
	  $(BIN)/python -m tests.support.stages $$stage; $(MAKE) --no-print-directory $$stage; done
	@$(BIN)/python -m tests.support.stages "spark and pulsar"
	@$(MAKE) --no-print-directory -k -j 2 --output-sync=target spark pulsar
	@$(BIN)/python -m tests.support.stages --report
	@$(BIN)/python -m tests.support.tools --report

check: lint types generated ## Lint, types, generated files

lint: $(VENV)/.dev ## Ruff: rules and format; the English of docstrings and comments; cleanups
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m scripts.check_words
	$(BIN)/python -m scripts.check_cleanup

types: $(VENV)/.dev ## mypy --strict
	$(BIN)/mypy

generated: $(VENV)/.dev ## Generated files are what their generators write
	$(BIN)/python -m scripts.generate --check

unit: $(VENV)/.dev ## Tests without sockets to the outside, on both cores
	$(BIN)/python -m pytest -q -n 2 tests/unit tests/property tests/fuzz tests/helm tests/test_layering.py -m "not spark"

integration: $(VENV)/.dev ## Tests of the whole proxy against the embedded broker, on both cores
	$(BIN)/python -m pytest -q -n 2 tests/integration

deploy: $(VENV)/.dev ## Tests of the image, Compose, manual pages, completion, with the tools that are here
	$(BIN)/python -m pytest -q tests/deploy

# One after the other: two Mavens at a time would write the same repository.
jars: $(VENV)/.dev
	$(BIN)/python -m tests.spark.jars

brokers: jars
	$(BIN)/python -m tests.pulsar.harness --prepare

spark: jars ## Tests of the pipeline in a Spark of their own (needs a JDK 17 and Maven)
	$(BIN)/python -m pytest -q tests/spark

pulsar: brokers ## Tests against a real Pulsar broker
	$(BIN)/python -m pytest -q tests/pulsar tests/conformance

bench: $(VENV)/.dev ## Measure: micro benchmarks, the ladder and its peers (needs Rust, Java 17, Maven, HAProxy; long)
	@set -e; for bench in benchmarks/bench_*.py; do $(BIN)/python -m benchmarks.$$(basename $$bench .py); done
	$(BIN)/python -m benchmarks.ladder.run all $(ARGS)
	$(BIN)/python -m benchmarks.real_broker

demo-pipeline: $(VENV)/.pipeline ## Record a storm of the demo, run every job of the pipeline on it; ends with the report's path
	$(BIN)/python -m pipeline.demo $(ARGS)

bench-pipeline: $(VENV)/.dev ## Measure the pipeline beside Polars and DuckDB (long)
	$(BIN)/python -m benchmarks.pipeline $(ARGS)

load: $(VENV)/.dev ## Load-test with Locust: the demo, or URL=pulsar://host:port; results in load-results/
	$(BIN)/python -m tests.load $(if $(URL),--url $(URL)) $(ARGS)

generate: $(VENV)/.dev ## Write all generated files anew
	$(BIN)/python -m scripts.generate

image: $(VENV)/.dev ## Build the image without a Docker engine (as root; needs buildah, debootstrap)
	$(BIN)/python -m scripts.build_image $(ARGS)

sbom: $(VENV)/.dev ## Write dist/sbom.json (CycloneDX): the proxy and all that its image installs
	$(BIN)/python -m scripts.write_sbom

lock: $(VENV)/.dev ## Resolve the dependencies anew into requirements/
	$(PIP) install uv
	$(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header -q -o requirements/runtime.txt pyproject.toml
	$(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header -q --extra dev -o requirements/dev.txt pyproject.toml
	$(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header -q --extra image -c requirements/dev.txt -o requirements/image.txt pyproject.toml
	$(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header -q --extra delta -c requirements/dev.txt -o requirements/pipeline.txt pyproject.toml
	printf 'hatchling\neditables\nshtab\n' | $(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header -q -o requirements/build.txt -

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .cache

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "python >= 3.11 is needed, $(PYTHON) is $$($(PYTHON) -V 2>&1): set PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.runtime: $(VENV)/.python requirements/runtime.txt requirements/build.txt pyproject.toml
	$(PIP) install --require-hashes -r requirements/build.txt -r requirements/runtime.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.pipeline: $(VENV)/.runtime requirements/pipeline.txt
	$(PIP) install --require-hashes -r requirements/pipeline.txt
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime requirements/dev.txt
	$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@
