"""Which updates are finite."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

from agents.metrics import all_finite

PARAMS = {'kernel': jnp.ones((2, 3)), 'steps': jnp.int32(3)}
METRICS = {'loss': jnp.float32(1.0), 'grad_norm': jnp.float32(2.0), 'rho': jnp.float32(1.0)}


@pytest.mark.parametrize('bad', [jnp.inf, -jnp.inf, jnp.nan])
@pytest.mark.parametrize('name, finite', [('loss', False), ('grad_norm', False), ('rho', True)])
def test_loss_and_gradient_decide_and_no_other_metric(name, finite, bad):
  assert all_finite(PARAMS, METRICS)
  assert all_finite(PARAMS, METRICS | {name: jnp.float32(bad)}) == finite
  several = {k: jnp.stack([v, v]) for k, v in METRICS.items()}
  several[name] = several[name].at[1].set(bad)
  assert all_finite(PARAMS, several) == finite


def test_parameters_decide_for_an_agent_that_reports_neither():
  spoilt = PARAMS | {'kernel': PARAMS['kernel'].at[1, 2].set(jnp.nan)}
  assert all_finite(PARAMS, {}) and not all_finite(spoilt, {})
