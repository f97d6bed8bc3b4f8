"""Keeps the process of the tests small: what XLA compiled for one file is of no use to the next."""

import jax
import pytest


@pytest.fixture(scope='module', autouse=True)
def forget_compiled_functions():
  """Frees compiled functions after each file, which otherwise add up to gigabytes."""
  yield
  jax.clear_caches()
