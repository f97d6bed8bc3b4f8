# `make train` sets everything up and trains Sebulba on Catch; `make test` sets everything up and
# checks and tests the project. Neither installs anything again when nothing has changed.

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
export LD_LIBRARY_PATH := $(shell ./find_python.sh --libdir 2>/dev/null):$(LD_LIBRARY_PATH)
# Where Debian has the daemons of Slurm.
export PATH := $(PATH):/usr/sbin

.DEFAULT_GOAL := help
.PHONY: help train test nightly check lock slurm clean

help:
	@echo 'make train   set up, then train Sebulba on Catch (about two minutes)'
	@echo 'make test    set up, then check and test everything'
	@echo 'make nightly the tests that take minutes, or a quiet machine'
	@echo 'make check   ruff and mypy only'
	@echo 'make lock    resolve requirements.in into requirements.txt'
	@echo 'make slurm   as root on Debian: install Slurm, for the test that starts a cluster'
	@echo 'make clean   remove the virtual environment'

train: $(INSTALLED)
	$(BIN)/python launch.py

test: $(INSTALLED) check slurm
	$(BIN)/python -m pytest

nightly: $(INSTALLED)
	$(BIN)/python -m pytest -m nightly

check: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

$(INSTALLED): requirements.txt find_python.sh
	@./find_python.sh > /dev/null
	test -x $(BIN)/python || "$$(./find_python.sh)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^uv==' requirements.txt)"
	$(BIN)/uv pip sync --quiet --python $(BIN)/python requirements.txt
	touch $@

lock: $(INSTALLED)
	$(BIN)/uv pip compile --quiet --python $(BIN)/python --custom-compile-command 'make lock' \
	  requirements.in --output-file requirements.txt

# Who is not root, or not on Debian, tests without a Slurm cluster.
SLURM := slurm-wlm slurm-wlm-basic-plugins munge iproute2 util-linux
slurm:
	@test "$$(id -u)" != 0 || ! command -v apt-get > /dev/null || dpkg -s $(SLURM) > /dev/null 2>&1 || { \
	  apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $(SLURM); }

clean:
	rm -rf $(VENV)
