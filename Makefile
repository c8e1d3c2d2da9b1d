# Everything a clone needs: Python 3.11 or later and make. `make help` lists the targets.
#
# Packages come from locks with hashes: pip installs uv, which installs the others; the jars of the broker
# and of Spark's connector are kept outside the clone, in $KIWI_GW_CACHE, else $XDG_CACHE_HOME/kiwi-gw, else
# ~/.cache/kiwi-gw; they come from Maven Central, or from the mirror that $KIWI_GW_MAVEN names.
# Once they are there, no target needs a network.

SHELL := /bin/sh
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
LOWEST := build/lowest
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
# Progress for people; a CI log has no use for it.
PIP_INSTALL := $(PIP) install $(if $(CI),--quiet) --require-hashes --no-build-isolation
# Locks name everything there is to install: nothing is looked for beyond them.
uv_install = $(BIN)/uv pip install $(if $(CI),--quiet) --python $(1)/bin/python --no-deps --no-build-isolation
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header

# What the demo's packages ask for and the demo never imports: 160 MB.
UNUSED := pandas numpy python-dateutil pytz

# Settings of single targets: make demo SECONDS=20 SPEED=3600; make pytest ARGS="-k window".
SECONDS ?=
SPEED ?=
ARGS ?=
FAULTS ?=
KILLS ?=
PROTOCOL ?=
# What `make bench` tries many more examples of.
LONG := tests/edge/test_races.py tests/edge/test_request_head.py tests/edge/test_frame_reader.py tests/unit/core \
  tests/unit/config tests/unit/dialects tests/plugins/tokens/test_jwt_attacks.py

# Or every process of pytest and many that tests start would compile all anew, where the shell says so.
unexport PYTHONDONTWRITEBYTECODE

# What runs beside the other tests of brokers, and stands back for them, as some of those look at the clock.
OF_SPARK := tests/integration/spark tests/integration/test_demo.py
AT_LEISURE := $(OF_SPARK) $(patsubst %,tests/integration/test_%.py,autobahn broker documentation \
  documented_scripts node queries reload resume two_hundred_thousand two_protocols workers)

# Those of Spark take most of what `make test` leaves out: there some of them run with the others, so that both
# processes end at about the same time.
SPARK_WITH_OTHERS := $(addprefix tests/integration/spark/test_,checkpoint_conformance.py checkpoint_crash.py \
  checkpoint_faults.py checkpoint_queries.py fourteen.py)
REST_OF_SPARK := $(filter-out $(SPARK_WITH_OTHERS),$(wildcard tests/integration/spark/test_*.py))

# Which tests: by their marks, which pyproject.toml explains, and which of them stand back. `make test` takes these,
# and `make test-rest` all others (mostly Spark's); together they are `make test-all`.
MARKS := not extended
BEHIND := $(AT_LEISURE)

# In two processes; the one that is done first takes from the other.
BOTH := -n 2 --dist worksteal

# uv does not read pip's settings; who has a mirror for pip means it for uv, too.
ifdef PIP_INDEX_URL
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
endif

# A part of the tests; that ARGS leaves none of it (5) is no failure.
run = $(2) $(BIN)/python -m pytest --durations=20 $(1) $(ARGS) || [ $$? -eq 5 ]

.PHONY: help setup jars check check-static check-tests lowest test test-rest test-all test-alone test-beside test-behind test-others audit pytest docs reference lint types layers outside format demo bench wheel fuzz lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

setup: $(VENV)/.installed $(VENV)/.browser jars ## everything that the other targets need; does nothing the second time
	$(if $(filter setup,$(MAKECMDGOALS)),@echo "ready: . $(VENV)/bin/activate; kiwi-gw version")

# What looks at the code runs beside the tests: without its cache it takes half as long as they do. What it
# says comes at their end.
check: lint ## all checks of the code, and the fast tests with fewer examples (within a minute)
	@$(MAKE) --no-print-directory -k -j 2 check-static check-tests; code=$$?; cat build/static.log; exit $$code

check-static: setup
	@mkdir -p build
	@$(MAKE) --no-print-directory -k types layers docs > build/static.log 2>&1

# A third of their time they wait: for each other, for clocks and for files.
FAST := -n 3 --dist worksteal --hypothesis-profile check

check-tests: setup
	$(BIN)/python -m pytest -m "not slow and not integration and not extended" $(FAST) $(ARGS)

# They run once more here, so this is where it is traced which branches they go through. Tracing takes several
# times as long, and memory: so neither those that count milliseconds or bytes are traced, nor those with brokers
# and Spark, which have as long for everything as it takes without. anyio comes with httpx; the plugin of its old
# versions warns where pytest is new, which is an error here, also in those that tests start.
lowest: setup $(LOWEST)/.installed ## what needs no broker with the oldest versions that pyproject.toml allows, and what of the code it goes through
	@rm -rf build/coverage
	PYTEST_ADDOPTS="-p no:anyio" COVERAGE_PROCESS_START=$(CURDIR)/pyproject.toml $(LOWEST)/bin/python -m pytest -q \
	  -p no:cacheprovider -m "not integration and not extended and not cost" $(FAST) $(ARGS)
	$(LOWEST)/bin/python -m coverage combine --quiet
	$(LOWEST)/bin/python -m coverage report --skip-covered
	$(LOWEST)/bin/python -m tests.covered

# What needs no broker runs in two processes, beside what looks at the code. Then those that need one, in two
# processes that share it; what the one that stands back says comes at its end.
test: lint ## every check, all fast tests, and once what the README promises, with a real Kafka and Spark (10 minutes)
	@failed=; \
	$(MAKE) --no-print-directory -k -j 2 check-static test-alone || failed=1; \
	cat build/static.log; \
	$(MAKE) --no-print-directory test-beside || failed=1; \
	if [ "$$failed" ]; then echo "make test: there were failures" >&2; exit 1; fi

test-rest: setup ## what make test leaves out: several brokers, long faults, repetitions, small rounds of the benchmarks
	@failed=; \
	$(MAKE) --no-print-directory -k test-alone test-beside MARKS="extended and not long" BEHIND="$(REST_OF_SPARK)" || failed=1; \
	if [ "$$failed" ]; then echo "make test-rest: there were failures" >&2; exit 1; fi

test-all: setup ## make test, then make test-rest: every test but the long ones (45 minutes)
	@failed=; \
	for part in test test-rest audit; do $(MAKE) --no-print-directory $$part || failed=1; done; \
	if [ "$$failed" ]; then echo "make test-all: there were failures" >&2; exit 1; fi

audit: setup ## whether packages of requirements.lock have known vulnerabilities, where that can be looked up
	@$(BIN)/python -m tests.audit

test-alone: setup
	$(call run,-m "not integration and ($(MARKS))" $(BOTH))

test-beside: setup
	@$(BIN)/python -m tests.integration.shared_broker $(MAKE) --no-print-directory -k -j 2 test-behind test-others

test-behind: setup
	@mkdir -p build
	@echo "others run beside these; what they say is shown at their end: $(BEHIND)"
	@{ $(call run,-m "integration and ($(MARKS))" $(BEHIND),nice -n 5); } > build/test-behind.log 2>&1; \
	code=$$?; cat build/test-behind.log; exit $$code

test-others: setup
	$(call run,-m "integration and ($(MARKS))" $(BEHIND:%=--ignore=%))

pytest: setup ## pytest alone: make pytest ARGS="-k window"
	$(BIN)/python -m pytest $(ARGS)

demo: $(VENV)/.demo $(VENV)/.package ## flights through a real Kafka and the gateway; SECONDS=20 ends it, SPEED=3600 replays faster
	$(BIN)/kiwi-gw demo $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SPEED),--speed $(SPEED))

bench: setup ## all benchmarks and faults with a report (hours); one of them: make bench ARGS="fanout --repeat 1"
	$(BIN)/python -m benchmarks $(or $(ARGS),--save)
	$(if $(ARGS),,$(BIN)/python -m pytest --hypothesis-profile long --timeout 3600 $(LONG))
	$(if $(ARGS),,$(BIN)/python -m tests.integration.shared_broker $(BIN)/python -m pytest --timeout 3600 -m long)
	$(if $(ARGS),,$(BIN)/python -m benchmarks.faults $(FAULTS))
	$(if $(ARGS),,$(BIN)/python -m benchmarks.kills $(KILLS))

wheel: setup ## dist/: the wheel and the sdist, with the classes for Spark's JVM compiled
	@$(BIN)/python -m kiwi_spark.java.classes
	$(BIN)/python -m hatchling build
	@rm -f plugins/kiwi_spark/java/kiwi-spark.jar # left there it would be used instead of what is compiled here

fuzz: $(VENV)/.fuzz ## looks for messages that cost too much time or room, guided by coverage; SECONDS=300 for each kind
	$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),60) $(ARGS)

$(VENV)/.fuzz: requirements-fuzz.lock $(VENV)/.installed
	$(call uv_install,$(VENV)) --require-hashes --requirement requirements-fuzz.lock
	@touch $@

docs: setup ## the documentation as a site in build/site; warnings are errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean --config-file .mkdocs.yml

reference: setup ## the generated parts of the documentation, anew: keys, commands, metrics, functions
	@for part in config cli metrics query; do $(BIN)/python -m tests.$${part}_reference || exit; done

lint: setup
	$(BIN)/ruff format --check --quiet . || { echo "run 'make format'"; exit 1; }
	$(BIN)/ruff check --quiet .

types: setup
	$(BIN)/mypy

layers: setup
	$(BIN)/lint-imports

# What it takes to add a protocol: its commits say which one it is, in a line `Protocol: zetta`.
outside: ## what protocols changed outside their own rooms, in lines; one of them: make outside PROTOCOL=zetta
	@git log --grep '^Protocol: $(PROTOCOL)' --format='%s' --shortstat -- kiwi_gw ':!kiwi_gw/dialects' \
	  ':!kiwi_gw/query' ':!kiwi_gw/config' ':!kiwi_gw/cli' ':!kiwi_gw/client'

format: setup ## formats the code and mends what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: setup ## resolves the newest allowed versions of all dependencies anew
	$(LOCK) pyproject.toml --upgrade --all-extras --group dev --group bench --group build --output-file requirements.lock
	@mkdir -p build
	$(LOCK) pyproject.toml --upgrade --all-extras --resolution lowest-direct --output-file build/lowest.txt
	$(LOCK) pyproject.toml --upgrade --all-extras --group dev --group build --constraint build/lowest.txt --output-file requirements-lowest.lock
	$(LOCK) pyproject.toml --extra kafka --extra jwt --extra password --extra avro --constraint requirements.lock --output-file deploy/gateway.lock
	$(LOCK) pyproject.toml --extra kafka --extra jwt --extra password --extra avro --extra spark --constraint requirements.lock --output-file deploy/spark.lock
	$(LOCK) pyproject.toml --extra demo $(UNUSED:%=--no-emit-package %) --constraint requirements.lock --output-file requirements-demo.lock
	$(LOCK) --group pyproject.toml:build --constraint requirements.lock --output-file requirements-build.lock
	$(LOCK) --group pyproject.toml:fuzz --constraint requirements.lock --output-file requirements-fuzz.lock

clean: ## removes the .venv and all caches inside the clone (not the jars)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist plugins/kiwi_spark/java/*.jar
	find kiwi_gw plugins tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# The set-up, each step with a stamp that says it was finished.

$(VENV)/.made:
	@for python in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "making $(VENV) with $$python"; \
	    rm -rf $(VENV) && "$$python" -m venv $(VENV) && touch $@ && exit 0; \
	    echo "making a virtual environment failed; on Debian: apt-get install python3-venv" >&2; exit 1; \
	  fi; \
	done; \
	echo "no Python 3.11 or later was found; install one, or name it: make PYTHON=/path/to/python3" >&2; exit 1

# uv, and what it builds with: pyspark has no wheel, and nothing is built in isolation.
$(VENV)/.built: requirements-build.lock | $(VENV)/.made
	$(PIP_INSTALL) --requirement requirements-build.lock
	@touch $@

$(VENV)/.locked: requirements.lock $(VENV)/.built
	@echo "installing the packages of requirements.lock (the first time this downloads about 700 MB)"
	$(call uv_install,$(VENV)) --require-hashes --requirement requirements.lock
	@touch $@

# Without a cache, which would take more room than the packages.
$(VENV)/.demo: requirements-demo.lock $(VENV)/.built
	@echo "installing the packages of requirements-demo.lock (550 MB to download)"
	$(call uv_install,$(VENV)) --no-cache --require-hashes --requirement requirements-demo.lock
	@touch $@

$(VENV)/.package: pyproject.toml hatch_build.py $(VENV)/.built
	$(call uv_install,$(VENV)) --quiet --no-index --editable .
	@touch $@

$(VENV)/.installed: $(VENV)/.locked $(VENV)/.package
	@touch $@

$(LOWEST)/.installed: requirements-lowest.lock $(VENV)/.package
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(LOWEST)
	@for lock in requirements-build.lock requirements-lowest.lock; do \
	  $(call uv_install,$(LOWEST)) --quiet --require-hashes --requirement $$lock || exit 1; \
	done
	@$(call uv_install,$(LOWEST)) --quiet --no-index --editable .
	@touch $@

# A Chromium for the tests, by the locked npm from a package that is locked by hash.
BROWSER := tests/integration/browser
$(VENV)/.browser: $(wildcard $(BROWSER)/*) $(VENV)/.locked
	@echo "installing the browser of the tests (75 MB)"
	@$(BIN)/python $(BROWSER)/install.py $(VENV)/browser
	@touch $@

# Not a stamp: the jars lie outside the clone, so they are looked at (0.4 s), and fetched or
# compiled where they are missing.
jars: $(VENV)/.installed
	@$(BIN)/python -m kiwi_demo.jars
