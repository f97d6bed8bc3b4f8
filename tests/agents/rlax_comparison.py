"""Compares V-trace with rlax's; fails if they differ. See test_vtrace_targets.py."""

import jax
import jax.numpy as jnp
import numpy as np
import rlax

from agents.vtrace.targets import vtrace
from tests.agents.test_vtrace_targets import random_inputs


def main():
  values, rewards, discounts, rhos, valid = random_inputs(seed=1, terminations=False)
  inputs = [jnp.asarray(x, jnp.float32) for x in (values, rewards, discounts, rhos)]
  values, rewards, discounts, rhos = inputs
  for rho_bar, lambda_ in ((1.0, 1.0), (1.7, 1.0), (1.7, 0.8)):
    errors = jax.vmap(
      lambda v, w, r, d, rho, rho_bar=rho_bar, lambda_=lambda_: rlax.vtrace(
        v, w, r, d, rho, lambda_, rho_bar
      ),
      in_axes=1,
      out_axes=1,
    )(values[:-1], values[1:], rewards, discounts, rhos)
    actual = vtrace(*inputs, jnp.asarray(valid), rho_bar=rho_bar, lambda_=lambda_)
    np.testing.assert_allclose(actual.values - values[:-1], errors, rtol=0, atol=1e-5)
    if lambda_ == 1.0:  # With lambda < 1 rlax bootstraps advantages from another mixture.
      expected = jax.vmap(
        lambda v, w, r, d, rho, rho_bar=rho_bar: rlax.vtrace_td_error_and_advantage(
          v, w, r, d, rho, 1.0, rho_bar, rho_bar
        ),
        in_axes=1,
        out_axes=1,
      )(values[:-1], values[1:], rewards, discounts, rhos)
      np.testing.assert_allclose(actual.advantages, expected.pg_advantage, rtol=0, atol=1e-5)


if __name__ == '__main__':
  main()
