# `make train` sets everything up and trains Sebulba on Catch; `make test` sets everything up and
# checks and tests the project. Neither reinstalls anything when nothing has changed.

VENV := .venv
BIN := $(VENV)/bin
NEWEST := .venv-newest
JAX_SUITES := .venv-jax-suites
LIBPYTHON := lib/python3.10/site-packages/libpython.pth
# cpu, cuda or tpu: the plug-in of JAX beside requirements.txt. The virtual environment keeps the last choice.
ACCELERATOR ?= $(or $(patsubst $(VENV)/installed-%,%,$(firstword $(wildcard $(VENV)/installed-*))),cpu)
ifeq ($(filter cpu cuda tpu,$(ACCELERATOR)),)
$(error ACCELERATOR=$(ACCELERATOR) is unknown; set it to cpu, cuda or tpu)
endif
INSTALLED := $(VENV)/installed-$(ACCELERATOR)
LOCKS := requirements.txt $(if $(filter-out cpu,$(ACCELERATOR)),requirements-$(ACCELERATOR).txt)
# Debian's directory of Slurm's daemons.
export PATH := $(PATH):/usr/sbin

.DEFAULT_GOAL := help
.PHONY: help train add remove quick test nightly newest jax-suites check docs lock slurm clean

help:
	@echo 'make train   set up, then train Sebulba on Catch (under a minute); ACCELERATOR=cuda or tpu'
	@echo "make add PACKAGES='navix wandb'      install packages of your own beside the locked ones"
	@echo 'make remove PACKAGES=navix           the reverse'
	@echo 'make quick   set up, then the tests that need no whole program and no cluster (two minutes)'
	@echo 'make test    set up, then check and test everything except nightly tests'
	@echo 'make nightly the tests that need minutes or a quiet machine, make newest, make jax-suites'
	@echo 'make newest  test the agents on the newest Python here and the newest JAX'
	@echo 'make jax-suites  train in environments of Jumanji and Craftax, in a virtual environment of their own'
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
quick: $(INSTALLED)
	$(PYTEST) $(SIDE_BY_SIDE) -m 'not program and not cluster and not slow and not nightly'

test: $(INSTALLED) check slurm
	$(PYTEST) $(SIDE_BY_SIDE)

nightly: $(INSTALLED) newest jax-suites
	$(PYTEST) -m nightly

# One test compares with rlax, which is not a dependency of the agents.
newest: $(NEWEST)/installed
	JAX_PLATFORMS=cpu $(NEWEST)/bin/python -m pytest tests/agents --deselect \
	  tests/agents/test_vtrace_targets.py::test_matches_rlax

jax-suites: $(JAX_SUITES)/installed
	$(JAX_SUITES)/bin/python -m pytest -m nightly tests/test_jax_suites.py

check: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

docs: $(INSTALLED)
	$(BIN)/python launch.py --dry_run --graph=docs/graph.svg > /dev/null
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=true $(BIN)/python -m mkdocs build --strict

# Reverb needs libpython as a shared library. An interpreter that is linked statically, as uv's is, loads it by
# the last command.
define install
	@./find_python.sh > /dev/null
	test -x $(BIN)/python || "$$(./find_python.sh)" -m venv $(VENV)
	sed -n '/^uv==/,/^ *#/p' requirements.txt | $(BIN)/python -m pip install --quiet \
	  --disable-pip-version-check --no-deps --require-hashes --requirement /dev/stdin
	@$(BIN)/python install_packages.py $(1) $(LOCKS)
	$(BIN)/python -c 'import sys; sys.exit("libpython" not in open("/proc/self/maps").read())' || \
	  echo "import ctypes; ctypes.CDLL('$$(./find_python.sh --libdir)/libpython3.10.so.1.0')" \
	    > $(VENV)/lib/python3.10/site-packages/libpython.pth
	rm -f $(VENV)/installed*
	touch $(INSTALLED)
endef

$(INSTALLED): $(LOCKS) $(wildcard requirements-user.in) find_python.sh
	$(call install,keep)

add remove:
	$(call install,$@)

$(NEWEST)/installed: $(INSTALLED) requirements-newest.in find_python.sh
	$(BIN)/uv venv --quiet --clear --python "$$(./find_python.sh --newest)" $(NEWEST)
	$(BIN)/uv pip install --quiet --python $(NEWEST)/bin/python --upgrade \
	  --override requirements-newest.in --requirement requirements-newest.in
	touch $@

$(JAX_SUITES)/installed: $(INSTALLED) requirements-jax-suites.in
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(JAX_SUITES)
	$(BIN)/uv pip install --quiet --python $(JAX_SUITES)/bin/python --constraint requirements.txt \
	  --requirement requirements.in --requirement requirements-jax-suites.in
	test ! -e $(VENV)/$(LIBPYTHON) || cp $(VENV)/$(LIBPYTHON) $(JAX_SUITES)/$(LIBPYTHON)
	touch $@

LOCK := $(BIN)/uv pip compile --quiet --generate-hashes --python $(BIN)/python --custom-compile-command 'make lock'
# Environments of their own, for `watch.py --to=`.
TRACKERS := wandb mlflow
lock: $(INSTALLED)
	$(LOCK) requirements.in --output-file requirements.txt
	for extra in tpu cuda12; do \
	  echo "jax[$$extra]" | $(LOCK) - --constraint requirements.txt --python-platform x86_64-manylinux_2_31 \
	    --output-file requirements-$${extra%12}.txt || exit; \
	done
	for tracker in $(TRACKERS); do \
	  $(LOCK) viewing/trackers/$$tracker.in --output-file viewing/trackers/$$tracker.txt || exit; \
	done

# Without root or Debian this does nothing, and the tests run without a Slurm cluster.
SLURM := slurm-wlm slurm-wlm-basic-plugins munge iproute2 util-linux
slurm:
	@test "$$(id -u)" != 0 || ! command -v apt-get > /dev/null || dpkg -s $(SLURM) > /dev/null 2>&1 || { \
	  apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $(SLURM); }

clean:
	rm -rf $(VENV) $(NEWEST) $(JAX_SUITES)
