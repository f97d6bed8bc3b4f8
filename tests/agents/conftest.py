"""Keeps the process of the tests small."""

import os

import pytest

_MOST_BYTES = 3 << 29


@pytest.fixture(scope='module', autouse=True)
def forget_compiled_functions():
  """Frees compiled functions before they add up to gigabytes; until then files share common ones."""
  yield
  import jax  # Not before `pytest_configure` has chosen JAX's cache.

  with open('/proc/self/statm') as f:
    resident = int(f.read().split()[1]) * os.sysconf('SC_PAGE_SIZE')
  if resident > _MOST_BYTES:
    jax.clear_caches()
