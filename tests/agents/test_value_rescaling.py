"""The rescaling of values: literal numbers, and the inverse in both precisions."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from agents.value_rescaling import h, h_inverse
from tests.agents import r2d2_definition
from tests.agents.precision import enable_x64


def test_literals():
  x = jnp.float32([0.0, 3.0, -3.0, 8.0, 99.0, -0.75])
  expected = [0.0, 1.003, -1.003, 2.008, 9.099, -(np.sqrt(1.75) - 1) - 0.00075]
  np.testing.assert_allclose(h(x, 1e-3), expected, rtol=1e-6)
  np.testing.assert_allclose(h_inverse(jnp.float32(expected), 1e-3), x, rtol=2e-6)


def test_the_inverse_keeps_the_digits_of_float32():
  # The textbook formula is off by 6e-5 here, and by everything near 0.
  small = np.geomspace(1e-7, 1.0, 50)
  x = jnp.float32(np.concatenate([np.linspace(-300, 300, 601), small, -small]))
  np.testing.assert_allclose(h_inverse(h(x, 1e-3), 1e-3), x, rtol=3e-6)
  np.testing.assert_allclose(h(h_inverse(x, 1e-3), 1e-3), x, rtol=3e-6)
  assert h_inverse(x, 1e-3).dtype == jnp.float32


@pytest.mark.parametrize('epsilon', [0.0, 1e-3, 0.1])
def test_the_inverse_in_float64(epsilon):
  with enable_x64(True):
    x = jnp.linspace(-300.0, 300.0, 6001)
    assert x.dtype == jnp.float64
    np.testing.assert_allclose(h_inverse(h(x, epsilon), epsilon), x, rtol=1e-13, atol=1e-13)
    if epsilon:
      y = h(x, epsilon)
      np.testing.assert_allclose(
        y, r2d2_definition.h(np.asarray(x), epsilon), rtol=1e-10, atol=1e-12
      )
      np.testing.assert_allclose(r2d2_definition.h_inverse(np.asarray(y), epsilon), x, atol=1e-8)
