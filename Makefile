# `make train` sets everything up and trains Sebulba on Catch; `make test` sets everything up and
# checks and tests the project. Neither reinstalls anything when nothing has changed.

VENV := .venv
BIN := $(VENV)/bin
# Reverb's server, which ends at Python 3.11.
REPLAY := .venv-replay
NEWEST := .venv-newest
JAX_SUITES := .venv-jax-suites
SKYPILOT := .venv-skypilot
# uv makes the environments. It finds their Pythons on the PATH, in pyenv and among its own, or fetches them.
UV := .venv-uv/bin/uv
# 3.12 or 3.13. The virtual environment keeps the last choice, as it does for the accelerator.
PYTHON := $(or $(word 3,$(subst -, ,$(notdir $(firstword $(wildcard $(VENV)/installed-*))))),3.12)
ifeq ($(filter 3.12 3.13,$(PYTHON)),)
$(error PYTHON=$(PYTHON) is unknown; set it to 3.12 or 3.13)
endif
# cpu, cuda or tpu: the plug-in of JAX beside requirements.txt. The virtual environment keeps the last choice.
ACCELERATOR ?= $(or $(word 2,$(subst -, ,$(notdir $(firstword $(wildcard $(VENV)/installed-*))))),cpu)
ifeq ($(filter cpu cuda tpu,$(ACCELERATOR)),)
$(error ACCELERATOR=$(ACCELERATOR) is unknown; set it to cpu, cuda or tpu)
endif
INSTALLED := $(VENV)/installed-$(ACCELERATOR)-$(PYTHON)
LOCKS := requirements.txt $(if $(filter-out cpu,$(ACCELERATOR)),requirements-$(ACCELERATOR).txt)
# Debian's directory of Slurm's daemons.
export PATH := $(PATH):/usr/sbin
# A run starts many interpreters. Without bytecode each of them compiles what it imports, which costs an actor
# 0.4 s of CPU time; uv leaves compiling to the first import, and some containers forbid that to write.
export UV_COMPILE_BYTECODE := 1
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help train add remove try quick test nightly newest jax-suites skypilot check docs lock slurm clean

help:
	@echo 'make train   set up, then train Sebulba on Catch (under a minute); ACCELERATOR=cuda or tpu, PYTHON=3.13'
	@echo "make add PACKAGES='navix wandb'      install packages of your own beside the locked ones"
	@echo 'make remove PACKAGES=navix           the reverse'
	@echo 'make try OF=agents/vtrace   the tests that are named like a file or folder (seconds)'
	@echo 'make quick   set up, then the tests that need no whole program and no cluster (two minutes)'
	@echo 'make test    set up, then check and test everything except nightly tests'
	@echo 'make nightly the tests that need minutes or a quiet machine, make newest, make jax-suites, make skypilot'
	@echo 'make newest  test the agents on the newest Python here and the newest JAX'
	@echo 'make jax-suites  test the environments of other suites in JAX, in a virtual environment of their own'
	@echo "make skypilot  have SkyPilot's loader check a job group, in a virtual environment of its own"
	@echo 'make check   ruff and mypy only'
	@echo 'make docs    write the generated parts of docs/, and build the site; a dead link is an error'
	@echo 'make lock    resolve requirements.in into requirements.txt, and requirements-*.txt for containers'
	@echo 'make slurm   as root on Debian: install Slurm for the test that starts a cluster'
	@echo 'make clean   remove the virtual environments'

train: $(INSTALLED)
	$(BIN)/python launch.py $(if $(filter-out cpu,$(ACCELERATOR)),--accelerator=$(ACCELERATOR:cuda=gpu))

# Two processes; a file's tests stay in one. A third makes the others slower on two cores.
PYTEST := $(BIN)/python -m pytest
SIDE_BY_SIDE := -n 2 --dist loadfile --no-loadscope-reorder

# The tests of agents/vtrace and of agents/vtrace/loss.py are tests/agents/test_vtrace*.py, those of
# nodes/inference/client.py are tests/nodes/inference/test_client.py.
named = $(wildcard tests/$(1)) $(wildcard tests/$(dir $(1))test_$(basename $(notdir $(1)))*.py)
FOLDER = $(patsubst %/,%,$(dir $(OF:/=)))
TRIED = $(or $(if $(OF),$(strip $(call named,$(OF:/=)))),$(strip $(if $(findstring /,$(FOLDER)),$(call named,$(FOLDER)))),\
  $(error no test is named like OF=$(OF); set OF to a file or a folder, such as agents/vtrace or nodes/actor.py))
try: $(INSTALLED)
	$(PYTEST) -m 'not program and not cluster and not trains and not nightly' $(TRIED)

quick: $(INSTALLED)
	$(PYTEST) $(SIDE_BY_SIDE) -m 'not program and not cluster and not slow and not nightly'

test: $(INSTALLED) check slurm
	$(PYTEST) $(SIDE_BY_SIDE)

nightly: $(INSTALLED) newest jax-suites $(SKYPILOT)/installed
	$(PYTEST) -m nightly

# One test compares with rlax, which is not a dependency of the agents.
newest: $(NEWEST)/installed
	JAX_PLATFORMS=cpu $(NEWEST)/bin/python -m pytest tests/agents --deselect \
	  tests/agents/test_vtrace_targets.py::test_matches_rlax

jax-suites: $(JAX_SUITES)/installed
	$(JAX_SUITES)/bin/python -m pytest -m nightly tests/test_jax_suites.py

skypilot: $(INSTALLED) $(SKYPILOT)/installed
	$(PYTEST) -m nightly tests/launchers/skypilot

check: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

docs: $(INSTALLED)
	$(BIN)/python launch.py --dry_run --graph=docs/graph.svg > /dev/null
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=true $(BIN)/python -m mkdocs build --strict

# $(1): a virtual environment; $(2): the version of its Python; $(3): a way out.
define venv
	@test "$$($(1)/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>&1)" = $(2) || \
	  PATH="$$PATH:$$(printf '%s:' ~/.pyenv/versions/*/bin)" $(UV) venv --quiet --clear --python $(2) $(1) || \
	  { echo "error: $(1) needs a Python $(2), which is not here and which uv cannot fetch; install it, with" \
	    "'pyenv install $(2)' for example$(3)." >&2; exit 1; }
endef

# Launchpad's own files, without its compiled Courier.
define launchpad
	rm -rf $(1)/launchpad $(1)/lib/python$(PYTHON)/site-packages/launchpad
	$(BIN)/uv pip install --quiet --target $(1)/launchpad --python-version 3.10 --only-binary :all: \
	  --no-deps --require-hashes --requirement requirements-launchpad.txt
	mv $(1)/launchpad/launchpad $(1)/lib/python$(PYTHON)/site-packages
	rm -r $(1)/launchpad
endef

define install
	$(call venv,$(VENV),$(PYTHON),$(if $(filter 3.12,$(PYTHON)),$(comma) or choose another with PYTHON=3.13))
	$(UV_LOCK) | $(UV) pip install --quiet --python $(BIN)/python --no-deps --require-hashes --requirement -
	@$(BIN)/python install_packages.py $(1) $(LOCKS)
	$(call launchpad,$(VENV))
	rm -f $(VENV)/installed*
	touch $(INSTALLED)
endef

comma := ,
UV_LOCK := sed -n '/^uv==/,/^ *\#/p' requirements.txt
# Any Python is good enough for uv itself.
$(UV):
	@if python3 -c 'import ensurepip, venv' 2> /dev/null; then \
	  python3 -m venv .venv-uv && $(UV_LOCK) | .venv-uv/bin/python -m pip install --quiet \
	    --disable-pip-version-check --no-deps --require-hashes --requirement /dev/stdin; \
	elif command -v uv > /dev/null; then \
	  uv venv --quiet --clear .venv-uv && $(UV_LOCK) | uv pip install --quiet --python .venv-uv/bin/python \
	    --no-deps --require-hashes --requirement -; \
	else \
	  echo "error: make needs uv, or a python3 with the modules venv and ensurepip; install one of them, on Debian" \
	    "and Ubuntu with 'apt-get install python3-venv'." >&2; exit 1; \
	fi

$(INSTALLED): $(LOCKS) requirements-launchpad.txt $(wildcard requirements-user.in) $(REPLAY)/installed | $(UV)
	$(call install,keep)

add remove: $(REPLAY)/installed | $(UV)
	$(call install,$@)

$(REPLAY)/installed: requirements-replay.txt | $(UV)
	$(call venv,$(REPLAY),3.11)
	$(UV) pip sync --quiet --python $(REPLAY)/bin/python --require-hashes requirements-replay.txt
	find $(REPLAY)/lib/python3.11/site-packages/tensorflow ! -name libtensorflow_framework.so.2 ! -type d -delete
	find $(REPLAY)/lib/python3.11/site-packages/tensorflow -type d -empty -delete
	touch $@

$(NEWEST)/installed: $(INSTALLED) requirements-newest.in
	for version in 3.14 3.13 3.12; do PATH="$$PATH:$$(printf '%s:' ~/.pyenv/versions/*/bin)" \
	  $(UV) venv --quiet --clear --no-python-downloads --python $$version $(NEWEST) && break; done
	$(BIN)/uv pip install --quiet --python $(NEWEST)/bin/python --upgrade \
	  --override requirements-newest.in --requirement requirements-newest.in
	touch $@

$(JAX_SUITES)/installed: $(INSTALLED) requirements.txt requirements-jax-suites.txt
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(JAX_SUITES)
	$(BIN)/uv pip sync --quiet --python $(JAX_SUITES)/bin/python --require-hashes requirements.txt \
	  requirements-jax-suites.txt
	$(call launchpad,$(JAX_SUITES))
	touch $@

$(SKYPILOT)/installed: $(INSTALLED) requirements-skypilot.in
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(SKYPILOT)
	$(BIN)/uv pip install --quiet --python $(SKYPILOT)/bin/python --requirement requirements-skypilot.in
	touch $@

COMPILE := $(BIN)/uv pip compile --quiet --generate-hashes --custom-compile-command 'make lock'
# For every Python from 3.12 on.
LOCK := $(COMPILE) --universal --python-version 3.12
# Environments of their own, for `watch.py --to=`.
TRACKERS := wandb mlflow
lock: $(INSTALLED)
	$(LOCK) requirements.in --output-file requirements.txt
	$(COMPILE) requirements-launchpad.in --python-version 3.10 --only-binary :all: --no-deps \
	  --output-file requirements-launchpad.txt
	$(COMPILE) requirements-replay.in --python-version 3.11 --no-deps --output-file requirements-replay.txt
	for extra in tpu cuda12; do \
	  echo "jax[$$extra]" | $(LOCK) - --constraint requirements.txt \
	    --output-file requirements-$${extra%12}.txt || exit; \
	done
	$(LOCK) requirements-jax-suites.in --constraint requirements.txt --output-file requirements-jax-suites.txt
	for tracker in $(TRACKERS); do \
	  $(LOCK) viewing/trackers/$$tracker.in --output-file viewing/trackers/$$tracker.txt || exit; \
	done

# Without root or Debian this does nothing, and the tests run without a Slurm cluster.
SLURM := slurm-wlm slurm-wlm-basic-plugins munge iproute2 util-linux
slurm:
	@test "$$(id -u)" != 0 || ! command -v apt-get > /dev/null || dpkg -s $(SLURM) > /dev/null 2>&1 || { \
	  apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $(SLURM); }

clean:
	rm -rf $(VENV) $(REPLAY) $(NEWEST) $(JAX_SUITES) $(SKYPILOT) .venv-uv
