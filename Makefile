# Two commands do everything: `make train` and `make test`. The rest is for whoever works on motet.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
ONLY ?=
# Tests compile much and compute little: let XLA spend less on making programs fast, and not cut each in many pieces to
# be compiled side by side, since there are others to compile meanwhile.
QUICKLY := XLA_FLAGS="$(XLA_FLAGS) --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false \
	--xla_cpu_opt_preset=CPU_OPT_PRESET_FAST_COMPILE --xla_cpu_parallel_codegen_split_count=1"
# More processes than cores, since some wait; tests that share a compiled run stay in one process.
PYTEST := $(BIN)/python -m pytest -n 3 --dist loadgroup
# What is tested in double precision too, where a difference cannot hide behind rounding.
EXACT := tests/envs/test_gymnasium_twins.py tests/laws/test_law_3_fused_equals_handwritten.py \
	tests/laws/test_law_4_plans_keep_the_mathematics.py tests/published

.PHONY: help train test trials cluster hosts quick plain attack kills oracle failures learning mutations browser newcomer defaults \
	bench lint format docs clean

help:  ## what can be made
	@sed -nE 's/^([a-z]+):[^#]*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

train: .venv/trains  ## train PPO on CartPole, with a progress display
	$(BIN)/motet train ppo CartPole-v1 --total-timesteps 500_000

# What compares bits is run as users' programs are compiled. All else is safe under quick compilation: it compares within
# a tolerance, or two runs of the same programs.
BITS := tests/replay tests/laws/test_law_5_lag_is_exact.py tests/laws/test_law_5_contents.py \
	tests/laws/test_replay_in_a_plan.py tests/laws/test_law_16_control_flow_has_no_clock.py

# What compares a run with a clock has the machine to itself.
CLOCKED := tests/engine/test_virtual.py

# The rooms of the package, and the laws: from a loop to what is computed.
CORE := $(filter-out tests/cluster/ tests/envs/ tests/hardening/ tests/runs/,$(wildcard tests/*/))
# What users type, read and meet, what breaks on purpose, stops and goes on: mostly processes that start, wait and end.
RESUMED := tests/laws/test_law_14_a_cut_is_free.py
BROKEN := tests/engine/test_host_failures.py
TRIALS := $(wildcard tests/test_*.py) tests/envs tests/hardening tests/runs $(RESUMED) $(BROKEN)
# Runs over hosts without a cluster: in one process, over real sockets.
HOSTS := tests/engine/test_driver.py tests/engine/test_watched_hosts.py tests/engine/test_crossing.py \
	tests/engine/test_host_events.py

test: lint .venv/installed  ## linters, types, and the tests of the package and its laws
	$(QUICKLY) $(PYTEST) $(CORE) -m "not slow" \
		$(patsubst %,--ignore=%,$(BITS) $(CLOCKED) $(EXACT) $(RESUMED) $(BROKEN) $(HOSTS))
	$(PYTEST) $(BITS)
	JAX_ENABLE_X64=1 $(QUICKLY) $(PYTEST) $(EXACT)

trials: .venv/installed  ## environments, commands, documents; the laws in single precision; what breaks on purpose
	$(QUICKLY) $(PYTEST) $(TRIALS) $(filter-out tests/envs/%,$(EXACT)) -m "not slow and not attack"
	$(QUICKLY) $(BIN)/python -m pytest $(CLOCKED)

quick: .venv/installed  ## the suite in one precision, stopping at the first failure
	$(QUICKLY) $(PYTEST) tests -x -m "not slow and not attack and not cluster"

plain: .venv/installed  ## the suite without private parts of JAX (law 17), which takes twenty minutes
	MOTET_PLAIN_JAX=1 $(QUICKLY) $(PYTEST) tests --ignore=$(CLOCKED) -m "not slow and not attack and not cluster"
	MOTET_PLAIN_JAX=1 $(QUICKLY) $(BIN)/python -m pytest $(CLOCKED)

cluster: .venv/installed  ## runs over hosts: in one process, and on a Ray cluster of this machine
	$(QUICKLY) $(PYTEST) $(HOSTS)
	JAX_ENABLE_X64=1 $(QUICKLY) $(BIN)/python -m pytest tests/cluster -m "cluster and not rare"

hosts: .venv/installed  ## laws 4 to 7 and 13 over hosts, for every plan under each kind of algorithm
	JAX_ENABLE_X64=1 $(QUICKLY) $(BIN)/python -m pytest tests/cluster/test_laws_over_hosts.py tests/cluster/test_one_program.py

attack: .venv/installed  ## all that breaks on purpose, the rare cases too
	$(QUICKLY) $(PYTEST) tests/hardening

kills: .venv/installed  ## a run that is killed 200 times, and comes to the same end
	$(BIN)/python -m tests.kills 200 benchmarks/results/kills.md

oracle: .venv/installed  ## every algorithm that is resumed under every plan, in processes of their own
	$(QUICKLY) $(BIN)/python -m tests.oracle benchmarks/results/oracle.md

failures: .venv/installed  ## runs over hosts whose processes are killed 60 times, and come to the same end
	$(BIN)/python -m tests.failures

learning: .venv/installed  ## the long learning runs
	$(BIN)/python -m pytest tests -m slow

mutations: .venv/installed  ## break chosen lines, one at a time, and see the tests notice
	$(QUICKLY) $(BIN)/python -m tests.mutations

browser: .venv/installed  ## a report in Chromium, which must be installed (apt-get install chromium)
	$(QUICKLY) $(BIN)/python -m pytest tests/runs/test_report.py -rs

newcomer: .venv/installed  ## the documents' commands, where only the built wheel is installed
	$(BIN)/python -m tests.newcomer

defaults: .venv/installed  ## what each library learns with its own defaults
	$(BIN)/python -m benchmarks.defaults $(ONLY)

bench: .venv/installed  ## speed beside the peers; ONLY=name runs one
	$(BIN)/python -m benchmarks $(ONLY)

lint: .venv/installed  ## formatting, common mistakes and types
	$(BIN)/ruff check src tests benchmarks examples docs/site.py
	$(BIN)/ruff format --check src tests benchmarks examples docs/site.py
	$(BIN)/pyright

format: .venv/installed  ## format, and mend what can be
	$(BIN)/ruff check --fix src tests benchmarks examples docs/site.py
	$(BIN)/ruff format src tests benchmarks examples docs/site.py

docs: .venv/documents  ## the documents as a site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "The site is in site/; python3 -m http.server --directory site shows it."

.venv/trains: pyproject.toml constraints.txt  # what training needs, and no more
	$(PYTHON) -m venv .venv
	$(PIP) --editable .
	touch $@

# PoCL's compiler does not know processors that are newer than itself; where it fails there is Intel's driver.
.venv/installed: .venv/trains
	$(PIP) --editable '.[dev]'
	$(BIN)/python -m benchmarks.opencl_driver || $(PIP) --editable '.[intel-opencl]'
	touch $@

.venv/documents: .venv/trains
	$(PIP) --editable '.[docs]'
	touch $@

clean:  ## remove what was installed and cached
	rm -rf .venv .venv-peers .venv-rllib .pytest_cache .ruff_cache .hypothesis .cache site
