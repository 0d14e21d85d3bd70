# Every target sets up .venv in the checkout first. `make` alone lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help

STAGES := $(BIN)/python -m tests.support.stages
# What `make test` runs, and what only `make rest` does; a new file of these folders belongs to the rest.
TEST := lint generated types broker real unit proxy
REST := real-rest proxy-rest spark-rest proof stores deploy rust helm types-rest
UNIT := $(addprefix tests/,unit property model native test_layering.py)
# What the proxy promises, once each. Crowds, scarce machines, odd peers and walkthroughs of docs/ are for the rest.
PROXY := $(patsubst %,tests/integration/test_%.py,admin_api answers_in_memory bad_input broker_credentials \
  broker_faults broker_probes client_authentication client_cuts commands counted_relays direct_mode event_log \
  event_sinks fail_over floods half_closed_relays health hostile_clients http_authentication http_lookups \
  http_topic_lists kip72 known_brokers large_frames leaving limits_and_shutdown memory_rules \
  mixed_storms openid_issuer output_order overload_control pause proxy_headers public_texts relay_contract reload \
  reverse_proxy shared_lists slow_readers spill start take_over targets tls tls_rotation undrain watch_limits \
  web_endings web_port websockets without_extension)
# One broker and one Spark session serve all of these; those of Spark alone come first, while Maven brings the broker.
REAL := $(patsubst %,tests/spark/test_%.py,ingest usage) tests/conformance $(patsubst %,tests/pulsar/test_%.py, \
  event_log_end_to_end pattern_consumers produce_consume schema topics wire_protocol)
# Short versions of `make faults`, `load`, `soak`, `fuzz`.
PROOF := $(patsubst %,tests/integration/test_%.py,fault_matrix fault_proxy load) tests/soak tests/fuzz
# Each test starts processes of its own, with JVMs that wait for each other.
STORES := tests/spark/test_object_store.py
# Needs what `make release` has built: `make release-test` alone runs it.
RELEASE := tests/release/test_release.py
RUN := $(UNIT) $(REAL) $(PROOF) $(RELEASE) $(addprefix tests/,integration pulsar spark deploy helm rust)
# Test files in none of these folders and lists.
LEFT = $(filter-out $(RUN) $(addsuffix /%,$(RUN)),$(shell find tests -name 'test_*.py'))
PYTEST = $(STAGES) $@ $(BIN)/python -m pytest -q --junitxml=.cache/junit/$@.xml
but = $(addprefix --ignore=,$(1))
.PHONY: help demo demo-pipeline test rest test-all check pulsar spark $(TEST) $(REST) jars broker brokers bench bench-pipeline
.PHONY: load soak fuzz fuzz-native faults mutants generate image sbom release release-test audit lock clean native FORCE

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.runtime $(VENV)/.native ## Run an embedded broker, the proxy and a storm of clients; ends with a table
	$(BIN)/python -m proxy demo $(ARGS)

# What only computes runs beside what waits for brokers and JVMs; a failure of any stage counts, all of them are run.
test: $(VENV)/.python ## Check the code, run its tests, a real Pulsar and Spark among them (needs a JDK 17, Maven)
	@$(BIN)/python -m tests.pulsar.harness --check
	@$(STAGES) --forget
	@$(STAGES) environment $(MAKE) --no-print-directory NATIVE=required -j 2 $(VENV)/.dev $(VENV)/.native || { $(STAGES) --report; exit 1; }
	@$(STAGES) test $(MAKE) --no-print-directory NATIVE=said -k -j 4 --output-sync=target $(TEST); \
	  code=$$?; $(STAGES) --report; exit $$code

rest: $(VENV)/.dev $(VENV)/.native ## What `make test` leaves out (needs a JDK >= 21, too)
	@$(STAGES) rest $(MAKE) --no-print-directory NATIVE=said -k -j 3 --output-sync=target $(REST); \
	  code=$$?; $(STAGES) --report; exit $$code

test-all: ## Run test, and then rest
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory rest

check: lint generated types-rest rust ## Lint, types, generated files, the native crate

lint: $(VENV)/.dev ## Ruff: rules and format; cleanups; no test that nothing runs
	@$(STAGES) $@ sh -exc '$(BIN)/ruff check .; $(BIN)/ruff format --check .; $(BIN)/python -m scripts.check_cleanup; \
	  $(if $(LEFT),echo "nothing runs $(LEFT)"; exit 1)'

types: $(VENV)/.dev ## mypy --strict: the packages of the product
	@$(STAGES) $@ $(BIN)/mypy $(addprefix -p ,protocol limiter eventlog proxy pipeline)

types-rest: $(VENV)/.dev ## mypy --strict: everything, tests and scripts, too
	@$(STAGES) $@ $(BIN)/mypy

generated: $(VENV)/.dev ## Generated files are what their generators write
	@$(STAGES) $@ $(BIN)/python -m scripts.generate --check

rust: $(VENV)/.dev ## The native crate: rustfmt, clippy, its own tests and proofs, where cargo is
	@$(PYTEST) tests/rust

unit: $(VENV)/.dev $(VENV)/.native ## Tests without sockets to the outside
	@$(PYTEST) -n 2 $(UNIT)

# Most of their time these tests wait for clocks and kernels.
proxy: $(VENV)/.dev $(VENV)/.native ## Tests of the whole proxy against the embedded broker
	@$(PYTEST) -n 4 $(PROXY)

proxy-rest: $(VENV)/.dev $(VENV)/.native
	@$(PYTEST) -n 4 tests/integration $(call but,$(PROXY) $(PROOF))

proof: $(VENV)/.dev $(VENV)/.native ## Short versions of faults, load, soak and fuzz, as in make rest (minutes)
	@$(PYTEST) -n 4 $(PROOF)

deploy: $(VENV)/.dev $(VENV)/.native ## Tests of the image, Compose, manual pages, completion, with the tools that are here
	@$(PYTEST) -n 2 --dist loadfile tests/deploy

helm: $(VENV)/.dev $(VENV)/.native ## Tests of the charts, rendered for three versions of Kubernetes
	@$(PYTEST) -n 2 tests/helm

# One after the other: two Mavens at a time would write the same repository.
jars: $(VENV)/.dev
	@$(STAGES) $@ $(BIN)/python -m tests.spark.jars

broker: jars
	@$(STAGES) $@ $(BIN)/python -m tests.pulsar.harness --prepare

brokers: broker
	@$(STAGES) $@ $(BIN)/python -m tests.pulsar.harness --prepare-others

real: jars $(VENV)/.native ## Tests against one real Pulsar broker, and of the pipeline in one Spark
	@$(PYTEST) $(REAL)

real-rest: brokers $(VENV)/.native
	@$(PYTEST) tests/pulsar $(call but,$(REAL))

spark-rest: jars
	@$(PYTEST) tests/spark $(call but,$(REAL) $(STORES))

stores: jars
	@$(PYTEST) $(STORES)

pulsar: brokers $(VENV)/.native ## All tests against real Pulsar brokers
	$(BIN)/python -m pytest -q tests/conformance tests/pulsar

spark: jars ## All tests of the pipeline in a Spark of their own
	$(BIN)/python -m pytest -q tests/spark

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

faults: $(VENV)/.dev $(VENV)/.native ## Run the whole fault matrix; results in benchmarks/results/faults.json (minutes)
	$(BIN)/python -m tests.faults --write $(ARGS)

soak: $(VENV)/.dev $(VENV)/.native ## Load one proxy with churn for MINUTES=60, judge its memory; results in soak-results/
	$(BIN)/python -m tests.soak $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

fuzz: $(VENV)/.dev $(VENV)/.native $(VENV)/.fuzz ## Fuzz every reader of foreign bytes, guided by coverage: MINUTES=10 in sum, or RUNS= each
	$(BIN)/python -m tests.fuzz $(if $(MINUTES),--minutes $(MINUTES)) $(if $(RUNS),--runs $(RUNS)) $(ARGS)

fuzz-native: $(VENV)/.dev ## Fuzz the scanners in Rust, guided by coverage, MINUTES=1 each (needs cargo, a C++ compiler, crates.io once)
	$(BIN)/python -m tests.fuzz.natively $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

mutants: $(VENV)/.mutants $(VENV)/.native ## Break the product in 120 places, one by one: do its tests notice? MINUTES=60 a sitting, goes on (hours)
	nice -n 10 $(BIN)/python -m tests.mutants run $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

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
	$(BIN)/python -m pytest -q $(RELEASE)

audit: $(VENV)/.dev ## Ask for known faults of what is locked; of crates, where cargo-deny is, for licences and origins, too
	$(PIP) install --require-hashes -r requirements/audit.txt
	@set -e; for lock in image build pipeline native zig; do echo "requirements/$$lock.txt"; \
	  $(BIN)/pip-audit --progress-spinner off --disable-pip --require-hashes -r requirements/$$lock.txt; done
	@if command -v cargo-deny >/dev/null; then cd native && cargo deny check; else echo "not checked: crates (no cargo-deny here)"; fi

lock: $(VENV)/.dev ## Resolve the dependencies anew into requirements/
	$(PIP) install --require-hashes -r requirements/uv.txt
	$(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header -q -o requirements/runtime.txt pyproject.toml
	$(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header -q --extra dev -o requirements/dev.txt pyproject.toml
	$(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header -q --extra image -c requirements/dev.txt -o requirements/image.txt pyproject.toml
	$(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header -q --extra pipeline -c requirements/dev.txt -o requirements/pipeline.txt pyproject.toml
	printf 'hatchling\neditables\nshtab\n' | $(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header -q -o requirements/build.txt -
	printf 'atheris==3.0.0\n' | $(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header -q -o requirements/fuzz.txt -
	printf 'coverage>=7.10,<8\n' | $(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header -q -o requirements/mutants.txt -
	printf 'maturin>=1.16,<2\n' | $(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header -q -o requirements/native.txt -
	printf 'ziglang>=0.17,<0.18\n' | $(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header -q -o requirements/zig.txt -
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
	$(if $(filter said,$(NATIVE)),,@$(BIN)/python -m scripts.build_native $(if $(NATIVE),--required))

FORCE:

$(VENV)/.pipeline: $(VENV)/.runtime requirements/pipeline.txt
	$(PIP) install --require-hashes -r requirements/pipeline.txt
	@touch $@

# Atheris has wheels for some interpreters only; without it the fuzzer's own loop is used, which is slower.
$(VENV)/.fuzz: $(VENV)/.dev requirements/fuzz.txt
	-$(PIP) install --require-hashes -r requirements/fuzz.txt
	@touch $@

$(VENV)/.mutants: $(VENV)/.dev requirements/mutants.txt
	$(PIP) install --require-hashes -r requirements/mutants.txt
	@touch $@

# uv installs the same files by the same hashes for half of the processor time. Where there is none of it, or an index
# that only pip was told of, pip does that.
$(VENV)/.dev: $(VENV)/.runtime requirements/dev.txt requirements/uv.txt
	{ $(PIP) install --require-hashes -r requirements/uv.txt && \
	  $(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/dev.txt; } || \
	  $(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@
