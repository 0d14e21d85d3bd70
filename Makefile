# Every target sets up .venv in the checkout first. `make` alone lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help

# `make test NATIVE=none`: as where nobody has built the extension. PULSAR_PROXY_TEST_ENGINE=asyncio make test: the
# extension may be here, and no proxy uses it (tests/support/relay_engines.py).
ifeq ($(NATIVE),none)
export PULSAR_PROXY_TEST_ENGINE := none
endif
# What the extension stands in for: the start, relays, what they are held to, topic lists.
WITHOUT_EXTENSION := $(addprefix tests/integration/test_,without_extension.py relay_contract.py shared_lists.py start.py)
CHECKS := types rust generated lint
# Each test starts processes of its own, with JVMs that wait for each other.
SPARK_STORES := tests/spark/test_object_store.py
# Half of the time of tests/pulsar: brokers and proxies of their own, that are waited for.
PULSAR_APART := $(addprefix tests/pulsar/,secured broker_4_0 broker_5_0 $(addprefix test_,outages.py overload.py take_over.py transactions.py))
# Short versions of `make faults`, `load`, `soak`, `fuzz`, and the model: all of them are in `make test`.
PROOF := $(addprefix tests/integration/test_,fault_matrix.py fault_proxy.py load.py) tests/soak tests/fuzz tests/model
.PHONY: help demo demo-pipeline test quick check lint types generated rust unit integration without-extension deploy jars brokers pulsar conformance spark bench bench-pipeline load soak fuzz fuzz-native faults proof
.PHONY: spark-session spark-stores pulsar-first pulsar-apart generate image sbom release release-test audit lock clean native FORCE

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.runtime $(VENV)/.native ## Run an embedded broker, the proxy and a storm of clients; ends with a table
	$(BIN)/python -m proxy demo $(ARGS)

# Spark computes while the tests of Pulsar and of stores wait, and the others follow the first that ends: four side by
# side, the output of each in one piece, a failure of any counts.
test: $(VENV)/.python ## Run every check and every test (needs a JDK 17, one >= 21, Maven)
	@$(MAKE) --no-print-directory -j 2 $(VENV)/.dev $(VENV)/.native
	@$(BIN)/python -m tests.support.tools --forget
	@$(BIN)/python -m tests.support.stages --forget
	@$(BIN)/python -m tests.pulsar.harness --check
	@set -e; for stage in quick integration; do \
	  $(BIN)/python -m tests.support.stages $$stage; $(MAKE) --no-print-directory NATIVE=said $$stage; done
	@$(BIN)/python -m tests.support.stages "spark and brokers"
	@$(MAKE) --no-print-directory NATIVE=said -k -j 4 --output-sync=target \
	  spark-session pulsar-first pulsar-apart spark-stores deploy without-extension
	@$(BIN)/python -m tests.support.stages --report
	@$(BIN)/python -m tests.support.tools --report

# mypy works on one core.
check: $(VENV)/.dev ## Lint, types, generated files, the native crate
	@$(MAKE) --no-print-directory -k -j 2 --output-sync=target $(CHECKS)

# The compiler of the crate and mypy leave half of the machine to the tests.
quick: $(VENV)/.dev $(VENV)/.native ## check and unit, side by side
	@$(MAKE) --no-print-directory NATIVE=said -k -j 3 --output-sync=target $(CHECKS) unit

lint: $(VENV)/.dev ## Ruff: rules and format; cleanups
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m scripts.check_cleanup

types: $(VENV)/.dev ## mypy --strict
	$(BIN)/mypy

generated: $(VENV)/.dev ## Generated files are what their generators write
	$(BIN)/python -m scripts.generate --check

rust: $(VENV)/.dev ## The native crate: rustfmt, clippy, its own tests, where cargo is
	$(BIN)/python -m pytest -q tests/rust

unit: $(VENV)/.dev $(VENV)/.native ## Tests without sockets to the outside, on both cores
	$(BIN)/python -m pytest -q -n 2 tests/unit tests/property tests/fuzz tests/model tests/native tests/helm tests/test_layering.py -m "not spark"

# Most of their time these tests wait for clocks and kernels: six at a time use both cores.
integration: $(VENV)/.dev $(VENV)/.native ## Tests of the whole proxy against the embedded broker, on both cores
	$(BIN)/python -m pytest -q -n 6 tests/integration tests/soak

without-extension: $(VENV)/.dev ## Tests of start, relays and lists in processes that do not find the native extension
	PULSAR_PROXY_TEST_ENGINE=none $(BIN)/python -m pytest -q -n 2 $(WITHOUT_EXTENSION)

deploy: $(VENV)/.dev $(VENV)/.native ## Tests of the image, Compose, manual pages, completion, with the tools that are here
	$(BIN)/python -m pytest -q tests/deploy

# One after the other: two Mavens at a time would write the same repository.
jars: $(VENV)/.dev
	$(BIN)/python -m tests.spark.jars

brokers: jars
	$(BIN)/python -m tests.pulsar.harness --prepare

spark: jars ## Tests of the pipeline in a Spark of their own (needs a JDK 17 and Maven)
	$(BIN)/python -m pytest -q tests/spark

spark-session: jars
	$(BIN)/python -m pytest -q tests/spark $(addprefix --ignore=,$(SPARK_STORES))

spark-stores: jars
	$(BIN)/python -m pytest -q $(SPARK_STORES)

pulsar: brokers $(VENV)/.native ## Tests against a real Pulsar broker
	$(BIN)/python -m pytest -q tests/pulsar

# With the tests of fakes, which ask for the same broker.
pulsar-first: brokers $(VENV)/.native
	$(BIN)/python -m pytest -q tests/conformance tests/pulsar $(addprefix --ignore=,$(PULSAR_APART))

pulsar-apart: brokers $(VENV)/.native
	$(BIN)/python -m pytest -q $(PULSAR_APART)

conformance: brokers $(VENV)/.native ## The fake brokers of tests answer as real ones do
	$(BIN)/python -m pytest -q tests/conformance

bench: $(VENV)/.dev $(VENV)/.native ## Measure: micro benchmarks, the ladder and its peers (needs Rust, Java 17, Maven, HAProxy; long)
	@set -e; for bench in benchmarks/bench_*.py; do $(BIN)/python -m benchmarks.$$(basename $$bench .py); done
	$(BIN)/python -m benchmarks.ladder.run all $(ARGS)
	$(BIN)/python -m benchmarks.real_broker
	$(BIN)/python -m benchmarks.overload_real

demo-pipeline: $(VENV)/.pipeline $(VENV)/.native ## Record a storm of the demo, run every job of the pipeline on it; ends with the report's path
	$(BIN)/python -m pipeline.demo $(ARGS)

bench-pipeline: $(VENV)/.dev ## Measure the pipeline beside Polars and DuckDB (long)
	$(BIN)/python -m benchmarks.pipeline $(ARGS)

load: $(VENV)/.dev $(VENV)/.native ## Load-test with Locust: the demo, or URL=pulsar://host:port; results in load-results/
	$(BIN)/python -m tests.load $(if $(URL),--url $(URL)) $(ARGS)

proof: $(VENV)/.dev $(VENV)/.native ## Short versions of faults, load, soak, fuzz and the model, as in make test (minutes)
	$(BIN)/python -m pytest -q -n 2 $(PROOF)

faults: $(VENV)/.dev $(VENV)/.native ## Run the whole fault matrix; results in benchmarks/results/faults.json (minutes)
	$(BIN)/python -m tests.faults --write $(ARGS)

soak: $(VENV)/.dev $(VENV)/.native ## Load one proxy with churn for MINUTES=60, judge its memory; results in soak-results/
	$(BIN)/python -m tests.soak $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

fuzz: $(VENV)/.dev $(VENV)/.native $(VENV)/.fuzz ## Fuzz every reader of foreign bytes, guided by coverage: MINUTES=10 in sum, or RUNS= each
	$(BIN)/python -m tests.fuzz $(if $(MINUTES),--minutes $(MINUTES)) $(if $(RUNS),--runs $(RUNS)) $(ARGS)

fuzz-native: $(VENV)/.dev ## Fuzz the scanners in Rust, guided by coverage, MINUTES=1 each (needs cargo, a C++ compiler, crates.io once)
	$(BIN)/python -m tests.fuzz.natively $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

generate: $(VENV)/.dev ## Write all generated files anew
	$(BIN)/python -m scripts.generate

native: $(VENV)/.runtime ## Build the native extension, if cargo is here; also again after a build that failed
	@$(BIN)/python -m scripts.build_native --again

image: $(VENV)/.dev $(VENV)/.native ## Build the image without a Docker engine (as root; needs buildah, debootstrap)
	$(BIN)/python -m scripts.build_image $(ARGS)

sbom: $(VENV)/.dev ## Write dist/sbom.json (CycloneDX): the proxy and all that its image installs
	$(BIN)/python -m scripts.write_sbom

release: $(VENV)/.dev $(VENV)/.native ## Build into dist/ what a release has (as root, as the image); ARGS=--wheelhouse: for installs offline, too
	$(BIN)/python -m scripts.release $(ARGS)

release-test: $(VENV)/.dev ## Install each file of dist/ into an empty place and use it there (minutes)
	$(BIN)/python -m pytest -q tests/release

audit: $(VENV)/.dev ## Ask for known faults of what is locked: libraries, and crates where cargo-audit is
	$(PIP) install --require-hashes -r requirements/audit.txt
	@set -e; for lock in image build pipeline native; do echo "requirements/$$lock.txt"; \
	  $(BIN)/pip-audit --progress-spinner off --disable-pip --require-hashes -r requirements/$$lock.txt; done
	@if command -v cargo-audit >/dev/null; then cd native && cargo audit; else echo "not checked: crates (no cargo-audit here)"; fi

lock: $(VENV)/.dev ## Resolve the dependencies anew into requirements/
	$(PIP) install --require-hashes -r requirements/uv.txt
	$(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header -q -o requirements/runtime.txt pyproject.toml
	$(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header -q --extra dev -o requirements/dev.txt pyproject.toml
	$(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header -q --extra image -c requirements/dev.txt -o requirements/image.txt pyproject.toml
	$(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header -q --extra delta -c requirements/dev.txt -o requirements/pipeline.txt pyproject.toml
	printf 'hatchling\neditables\nshtab\n' | $(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header -q -o requirements/build.txt -
	printf 'atheris==3.0.0\n' | $(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header -q -o requirements/fuzz.txt -
	printf 'maturin>=1.16,<2\n' | $(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header -q -o requirements/native.txt -
	printf 'uv\n' | $(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header -q -o requirements/uv.txt -
	printf 'pip-audit\n' | $(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header -q -o requirements/audit.txt -

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .cache native/target

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "python >= 3.11 is needed, $(PYTHON) is $$($(PYTHON) -V 2>&1): set PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.runtime: $(VENV)/.python requirements/runtime.txt requirements/build.txt pyproject.toml
	$(PIP) install --require-hashes -r requirements/build.txt -r requirements/runtime.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

# A look at the files of native/, each time: only what has changed is built. `make test` has looked for its stages.
$(VENV)/.native: $(VENV)/.runtime FORCE
	$(if $(NATIVE),,@$(BIN)/python -m scripts.build_native)

FORCE:

$(VENV)/.pipeline: $(VENV)/.runtime requirements/pipeline.txt
	$(PIP) install --require-hashes -r requirements/pipeline.txt
	@touch $@

# Atheris has wheels for some interpreters only; without it the fuzzer's own loop is used, which is slower.
$(VENV)/.fuzz: $(VENV)/.dev requirements/fuzz.txt
	-$(PIP) install --require-hashes -r requirements/fuzz.txt
	@touch $@

# uv installs the same files by the same hashes for half of the processor time. Where there is none of it, or an index
# that only pip was told of, pip does that.
$(VENV)/.dev: $(VENV)/.runtime requirements/dev.txt requirements/uv.txt
	{ $(PIP) install --require-hashes -r requirements/uv.txt && \
	  $(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/dev.txt; } || \
	  $(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@
