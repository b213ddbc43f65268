# Tidemark. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# The libraries that the services link against: all that a build needs.
LIBRARIES := pkg-config libnghttp2-dev libssl-dev librocksdb-dev rapidjson-dev zlib1g-dev
# The foreign clients, servers and tools that the tests run.
TEST_TOOLS := curl openssl nghttp2-client nghttp2-server nghttp2-proxy python3 python3-venv python3-httpx python3-h2 \
  strace xxhash haproxy docker-compose chromium-headless-shell libnss3-tools nodejs node-typescript etcd-client \
  etcd-server iproute2
# What checks Python, shell scripts and JavaScript.
LINT_TOOLS := pyflakes3 shellcheck nodejs
# The load generator of the bench, and the servers that it compares with ours.
BENCH_TOOLS := nghttp2-client nghttp2-server nghttp2-proxy nginx redis-server redis-tools webdis postgresql

BUILD := .build
# An import without a declared dependency compiles or fails depending on build order. This flag makes it an error.
SWIFT_BUILD := swift build --scratch-path $(BUILD) --explicit-target-dependency-import-check=error
# Line tables are enough for backtraces, and take a tenth less to build. For a debugger: `make build DEBUG_INFO=-g`.
DEBUG_INFO ?= -gline-tables-only
# Debug builds optimise the engine and keep its assertions (Package.swift): random histories then take a tenth of the
# time.
SWIFT_DEBUG = TIDEMARK_OPTIMIZED_ENGINE=1 $(SWIFT_BUILD) $(BUILD_FLAGS) -Xswiftc $(DEBUG_INFO)
# Further flags of `swift build` for debug builds. Other flags compile everything anew.
BUILD_FLAGS ?=
# Release builds optimise across modules, because small functions of other targets read and write frames and rows. They
# do not check exclusive access at run time: the checks cost a tenth of a mark. Debug builds check it, and so does `make
# test`. Continuous integration (.ci/run) compiles its debug builds with the flag of the releases, without the checks.
RELEASE := -c release -Xswiftc -cross-module-optimization -Xswiftc -enforce-exclusivity=unchecked
DEBUG_BIN := $(BUILD)/debug
RELEASE_BIN := $(BUILD)/release
# The programs that tests start.
TESTED_BIN := $(DEBUG_BIN)
PROGRAMS := tidemark-store tidemark-gateway tidemark-worker tidemark
DESTINATION ?= $(BUILD)/static

# The number of concurrent tests of a run. Tests over sockets have deadlines, and need CPU time beside tests that
# compute.
TESTS_AT_ONCE ?= 4

.PHONY: help deps test-deps bench-deps build release static demo run test run-process-tests run-computing-tests \
  test-build test-long test-release test-sanitize test-target loss-test log-soak lint lint-deps lint-swift lint-python \
  lint-shell lint-javascript profile perf-check bench bench-push secrets deploy-check clean

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

# Installs the missing ones of these packages.
INSTALL := Tools/install-packages.sh

deps: ## Install the libraries that a build needs, from Debian (as root, or with sudo)
	@$(INSTALL) $(LIBRARIES)

build: deps ## Build the programs (debug)
	@$(SWIFT_DEBUG)

release: deps ## Build the programs, optimised
	@for product in $(PROGRAMS); do $(SWIFT_BUILD) $(RELEASE) --product $$product; done

# For the container images: builds programs with Swift's runtime linked in and without symbols, into DESTINATION. The
# images install the libraries themselves.
static:
	@for product in $(PROGRAMS); do $(SWIFT_BUILD) $(RELEASE) --static-swift-stdlib --product $$product; done
	@mkdir -p $(DESTINATION)
	@for product in $(PROGRAMS); do strip -o $(DESTINATION)/$$product $(RELEASE_BIN)/$$product; done

demo: build ## Run a sample conversation; STAY=1: then stay, with a page for the browser
	@$(DEBUG_BIN)/tidemark demo $(if $(STAY),--stay)

run: build ## Start a store and two gateways, and print the demo page's address and example curl commands
	@$(INSTALL) curl
	@$(DEBUG_BIN)/tidemark run

lint: lint-swift lint-python lint-shell lint-javascript ## Check Swift's format and comments, Python, shell, JavaScript
	@echo "lint: clean"

lint-deps:
	@$(INSTALL) $(LINT_TOOLS)

lint-swift:
	@swift format lint --strict --parallel -r Package.swift Sources Tests

# Undefined names, and unused imports and variables.
lint-python: lint-deps
	@find Tests Proto Deploy -name '*.py' -print0 | xargs -0 pyflakes3

lint-shell: lint-deps
	@find Tools Deploy Tests -name '*.sh' -print0 | xargs -0 shellcheck .ci/run Tests/IntegrationTests/Clients/python

# Whether the files can be parsed as modules.
lint-javascript: lint-deps
	@find SDK Sources Tests Tools \( -name '*.js' -o -name '*.mjs' \) -print0 \
	  | xargs -0 node --no-warnings --experimental-vm-modules Tools/check-modules.mjs

# Installs the tools below from PyPI, in the versions of the requirements file. Without PyPI their tests are skipped (in
# continuous integration they fail), and the next run tries again.
PYTHON_REQUIREMENTS := Tests/IntegrationTests/Clients/requirements.txt
PYTHON_TOOLS := schemathesis, standardwebhooks, playwright, http-ece, pywebpush
test-deps: deps
	@$(INSTALL) $(TEST_TOOLS) $(BENCH_TOOLS)
	@if ! cmp -s $(PYTHON_REQUIREMENTS) $(BUILD)/python/requirements.txt; then \
	  echo "installing from PyPI, under $(BUILD)/python: $(PYTHON_TOOLS)"; \
	  { rm -rf $(BUILD)/python && /usr/bin/python3 -m venv $(BUILD)/python \
	    && $(BUILD)/python/bin/pip install --quiet --disable-pip-version-check --retries 1 -r $(PYTHON_REQUIREMENTS) \
	    && cp $(PYTHON_REQUIREMENTS) $(BUILD)/python/; } \
	  || { rm -rf $(BUILD)/python; \
	    echo "could not install $(PYTHON_TOOLS) from PyPI: tests that need them are skipped"; }; \
	fi

# The time limit of a test run. A run that hangs ends with a list of its unfinished tests, before its caller's timeout.
TEST_MINUTES ?= 60

# Runs the built tests, with their environment variables. Without `swift test`, of which only one at a time can use a
# build directory.
RUN_TESTS = env NO_COLOR=1 TIDEMARK_OPTIMIZED_ENGINE=1 TIDEMARK_BIN=$(abspath $(TESTED_BIN)) \
  SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH=$(TESTS_AT_ONCE) \
  timeout --foreground --signal=INT --kill-after=40 $(TEST_MINUTES)m \
  $(DEBUG_BIN)/tidemarkPackageTests.xctest --testing-library swift-testing

# The build leaves one of two cores idle for a sixth of its time, so lint and downloads of test tools run beside it.
# Tests that compute need all CPU time. Those of the real programs have deadlines: they come afterwards, three at a
# time.
test: deps lint-deps ## Build and run every test, and print a count
	@$(MAKE) --no-print-directory --jobs=3 test-build test-deps lint
	@$(MAKE) --no-print-directory run-computing-tests run-process-tests
	@Tools/closing-count.sh $(foreach run,process computing,$(BUILD)/test-$(run).log $$(cat $(BUILD)/test-$(run).status))

# The targets and suites whose tests start the real programs, or etcd.
PROCESS_TESTS := ^(IntegrationTests|StoreEtcdTests|ClusterControlTests|LoadGeneratorTests)[.]$\
  |^WorkerTests[.](ProgramTests|PushProgramTests)/
run-process-tests:
	@$(call log_tests,process,$(RUN_TESTS) --filter '$(PROCESS_TESTS)')

run-computing-tests:
	@$(call log_tests,computing,$(RUN_TESTS) --skip '$(PROCESS_TESTS)')

# Writes the output of a run, $(2), to a file, its exit status to another one, and prints what is not of passed tests.
log_tests = set +e; $(2) 2>&1 | tee $(BUILD)/test-$(1).log \
  | grep --line-buffered -vE '^(◇|✔ Test |✔ Suite|\[[0-9]+/)'; \
  echo $${PIPESTATUS[0]} > $(BUILD)/test-$(1).status

test-build: deps
	@$(SWIFT_DEBUG) --build-tests

test-long: export TEST_MINUTES := 240
test-long: export TIDEMARK_TEST_LONG := 1
test-long: test ## The same with more seeds, longer histories and no sampling (takes hours)

# Durability, faults, memory, hostile callers, random histories, the scripts of the API, and the demo.
RELEASE_TESTS := RealProcesses/(Durability|ClusterFaults|Losses|Recovery|IntervalDurability|Overload|Memory|Restarts$\
  |RandomHistories|RouteScripts|HTTP1|Hostile.*|FramesAndHooks|Pushes|FeedLosses|ProbeScripts|DemoProgram)/
test-release: TESTED_BIN := $(RELEASE_BIN)
test-release: release test-deps test-build ## Test the release programs, whose compiler flags differ (after `make test`)
	@$(RUN_TESTS) --filter '$(RELEASE_TESTS)'

# The targets with raw memory (docs/contribute/unsafe.md): sessions of HTTP/2 and TLS, frames, pending requests, rows.
SANITIZED_TESTS := HTTP2SessionTests,TLSSessionTests,ReceiptWireTests,ReceiptModelTests,StoreClientTests,$\
  StoreEngineTests,StoreRocksDBTests,StoreServerTests,GatewayTests
test-sanitize: deps ## Test what uses raw memory under the address sanitizer (builds under .build/address)
	@ASAN_OPTIONS=detect_leaks=0 $(MAKE) --no-print-directory BUILD=$(BUILD)/address \
	  BUILD_FLAGS='--sanitize=address --disable-index-store' test-target TARGET=$(SANITIZED_TESTS)

profile: release ## Count the instructions of fixed work, and keep callgrind's profiles; ROWS='mark-read-100 …'
	@$(INSTALL) valgrind python3-h2
	@/usr/bin/python3 Tests/Performance/profile.py $(RELEASE_BIN) $(BUILD)/profiles $(if $(ROWS),--rows $(ROWS))

# On an idle machine: beside other work the store's counts differ.
FIGURES := Tests/Performance/figures.json
perf-check: release ## Compare the instructions and allocations of fixed work with the committed figures
	@$(INSTALL) valgrind python3-h2
	@/usr/bin/python3 Tests/Performance/profile.py $(RELEASE_BIN) $(BUILD)/profiles --check $(FIGURES)

test-target: ## Build and run the test targets of TARGET=ReceiptModelTests,…, or with FILTER=… one suite
	@[ -n "$(TARGET)" ] || { echo 'usage: make test-target TARGET=ReceiptModelTests[,…] [FILTER=…]'; exit 2; }
	@case ",$(TARGET)," in *,IntegrationTests,*|*,LoadGeneratorTests,*|*,WorkerTests,*) $(SWIFT_DEBUG) ;; esac
	@TIDEMARK_TEST_TARGETS=$(TARGET) $(SWIFT_DEBUG) --product tidemarkPackageTests
	@TIDEMARK_TEST_TARGETS=$(TARGET) $(RUN_TESTS) $(if $(FILTER),--filter '$(FILTER)')

loss-test: build test-deps ## Five minutes of cut connections, kills and slow readers: no event may be missing
	@$(SWIFT_DEBUG) --build-tests
	@TIDEMARK_LOSS_SECONDS=$${TIDEMARK_LOSS_SECONDS:-300} $(RUN_TESTS) --filter RealProcesses.Losses

# Appends a second in all, half of what was measured, and bytes of a record.
log-soak: export TIDEMARK_LOG_SOAK_RATE ?= 288
log-soak: export TIDEMARK_LOG_SOAK_BYTES ?= 32768
log-soak: test-deps ## An hour of appends to the shared log in etcd: its memory, database, latency and CPU time
	@$(MAKE) --no-print-directory test-build
	@TIDEMARK_LOG_SOAK_SECONDS=$${TIDEMARK_LOG_SOAK_SECONDS:-3600} $(RUN_TESTS) --filter EtcdSoak

bench-deps:
	@$(INSTALL) $(BENCH_TOOLS)

bench: release bench-deps ## Measure ours and other servers in turn (about 6 minutes)
	@$(RELEASE_BIN)/tidemark bench compare

bench-push: release ## Measure push acknowledgements through one stream, a million per run (about 5 minutes)
	@$(RELEASE_BIN)/tidemark bench push

secrets: ## Create the secrets for docker-compose.yml under Deploy/secrets
	@Deploy/service-secrets.sh

deploy-check: deps ## Build the container files in clean roots and test the results (as root; takes minutes)
	@$(INSTALL) debootstrap iproute2 python3 docker-compose curl openssl
	@Deploy/check/deploy-check.sh

clean: ## Remove the build directory
	@rm -rf $(BUILD)
