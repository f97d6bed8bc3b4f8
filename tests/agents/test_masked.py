"""What rows say of no transition reaches no loss: not even NaN does."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents import masked
from agents.muzero.agent import MuZero
from agents.muzero.config import MuZeroConfig
from agents.qt_opt.agent import QTOpt
from agents.qt_opt.config import QTOptConfig
from agents.sac.agent import SAC
from agents.sac.config import SACConfig
from agents.types import FIRST, LAST
from tests.agents.recording import (
  ACTION_SPEC,
  CONTINUOUS_ACTION_SPEC,
  OBSERVATION_SPEC,
  make_unrolls,
)
from tests.agents.small_agents import make_agent

_SMALL = {'unroll_length': 4, 'mlp_sizes': (8,), 'head_size': 8}


def _continuous(name):
  return make_agent(name, OBSERVATION_SPEC, CONTINUOUS_ACTION_SPEC, core='lstm')


def _muzero():
  options = {'num_unroll_steps': 2, 'n_step': 3, 'num_simulations': 2, 'hidden_state_size': 8}
  return MuZero(MuZeroConfig(**_SMALL, **options), OBSERVATION_SPEC, ACTION_SPEC)


def _qt_opt(value_loss):
  config = QTOptConfig(**_SMALL, num_samples=8, num_elites=2, value_loss=value_loss)
  return QTOpt(config, OBSERVATION_SPEC, CONTINUOUS_ACTION_SPEC)


def _sac():
  config = SACConfig(unroll_length=4, head_sizes=(8,))
  return SAC(config, OBSERVATION_SPEC, CONTINUOUS_ACTION_SPEC)


def _any_last(timestep):
  return timestep.step_type == LAST


def _terminal(timestep):
  return (timestep.step_type == LAST) & (timestep.discount == 0.0)


# What makes an agent, and the extras that say nothing in some rows, with these rows.
AGENTS = {
  'vtrace': (
    functools.partial(_continuous, 'vtrace'),
    {'behaviour_logits': _any_last, 'draw': _any_last},
  ),
  'ppo': (
    functools.partial(_continuous, 'ppo'),
    {'behaviour_logits': _any_last, 'draw': _any_last},
  ),
  'pqn': (functools.partial(make_agent, 'pqn', OBSERVATION_SPEC, core='lstm'), {}),
  'r2d2': (functools.partial(make_agent, 'r2d2', OBSERVATION_SPEC, core='lstm'), {}),
  'muzero': (_muzero, {'search_policy': _terminal}),
  'qt_opt, squared': (functools.partial(_qt_opt, 'squared'), {'target': _any_last}),
  'sac': (_sac, {}),
  'qt_opt, cross-entropy': (functools.partial(_qt_opt, 'cross_entropy'), {'target': _any_last}),
}


def _nan_where(rows, x):
  rows = rows.reshape(rows.shape + (1,) * (x.ndim - rows.ndim))
  return jnp.where(rows, jnp.nan, x) if jnp.issubdtype(x.dtype, jnp.floating) else x


@pytest.mark.slow
@pytest.mark.parametrize('name', AGENTS)
def test_an_update_does_not_depend_on_what_rows_say_of_no_transition(name):
  make, extras = AGENTS[name]
  agent = make()
  state = jax.jit(agent.init)(jax.random.key(0))
  unrolls = make_unrolls(agent, state, batch_size=6, seed=3)
  timestep = unrolls.timestep
  assert np.any(_terminal(timestep)[:, 1:-1]) and np.any((timestep.step_type == FIRST)[:, 1:])
  if 'target' in extras:
    keys = jax.random.split(jax.random.key(1), 6)
    unrolls = unrolls._replace(extras=jax.jit(agent.relabel)(state.params, unrolls, keys))
  first, last = timestep.step_type == FIRST, timestep.step_type == LAST
  without = unrolls._replace(
    timestep=timestep._replace(
      reward=_nan_where(first, timestep.reward), discount=_nan_where(first, timestep.discount)
    ),
    action=_nan_where(last, unrolls.action),
    extras=unrolls.extras
    | {name: _nan_where(rows(timestep), unrolls.extras[name]) for name, rows in extras.items()},
  )
  assert any(np.isnan(x).any() for x in jax.tree.leaves(without) if x.dtype == jnp.float32)
  update = jax.jit(agent.update)
  probabilities = jnp.full(6, 0.1)
  expected, actual = (update(state, x, probabilities) for x in (unrolls, without))
  jax.tree.map(np.testing.assert_array_equal, actual, expected)
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(actual.state.params))


def test_kept_entries_have_the_mean_and_its_gradient():
  x, valid = jnp.array([1.0, jnp.nan, 4.0]), jnp.array([True, False, True])

  def mean(x):
    return masked.mean(jnp.square(masked.kept(x, valid)), valid)

  value, gradient = jax.value_and_grad(mean)(x)
  assert value == 8.5 and gradient.tolist() == [1.0, 0.0, 4.0]
  labels = masked.kept(jnp.array([[1, 2], [3, 4], [5, 6]]), valid)
  assert labels.dtype == jnp.int32 and labels.tolist() == [[1, 2], [0, 0], [5, 6]]
