"""The head of actor-critics: initial outputs, a value with a torso of its own, free deviations."""

from __future__ import annotations

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.actor_critic.head import PolicyValueHead
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from tests.agents.recording import CONTINUOUS_ACTION_SPEC, OBSERVATION_SPEC, random_rows

FEATURES = jax.random.normal(jax.random.key(0), (4, 5, 16))


def test_orthogonal_weights_have_the_gains_of_ppo():
  head = PolicyValueHead(num_logits=6, init_of='orthogonal')
  layers = head.init(jax.random.key(1), FEATURES)['params']
  for name, gain in (('logits', 0.01), ('value', 1.0)):
    np.testing.assert_allclose(np.linalg.svd(layers[name]['kernel'])[1], gain, rtol=1e-4)


def test_free_logits_are_parameters_and_the_same_in_every_row():
  head = PolicyValueHead(num_logits=6, num_free=2)
  params = head.init(jax.random.key(1), FEATURES)
  assert not np.any(head.apply(params, FEATURES).logits[..., 4:])
  params['params']['free_logits'] = jnp.array([3.0, -1.0])
  output = head.apply(params, FEATURES)
  assert output.logits.shape == (4, 5, 6) and output.value.shape == (4, 5)
  np.testing.assert_array_equal(output.logits[..., 4:], np.broadcast_to([3.0, -1.0], (4, 5, 2)))
  assert np.std(output.logits[..., 0]) > 0


@pytest.mark.slow
@pytest.mark.parametrize('separate', [True, False])
def test_a_separate_critic_shares_no_gradient_with_the_policy(separate):
  config = VTraceConfig(unroll_length=4, mlp_sizes=(16,), separate_critic=separate)
  agent = VTrace(config, OBSERVATION_SPEC, CONTINUOUS_ACTION_SPEC)
  params, rows = agent.network.init(jax.random.key(0)), random_rows(5, 3)

  def total(params, part):
    output, _ = agent.network.unroll(params, {}, rows, jnp.zeros((5, 3, 3)))
    return jnp.sum(jnp.square(getattr(output, part)))

  moved = {}
  for part in ('logits', 'value'):
    gradient = flax.traverse_util.flatten_dict(jax.grad(total)(params, part)['params'], sep='/')
    moved[part] = {name for name, x in gradient.items() if np.any(x)}
  assert moved['logits'] | moved['value'] == set(gradient)
  shared = moved['logits'] & moved['value']
  assert shared == set() if separate else shared == {n for n in gradient if n.startswith('torso')}
