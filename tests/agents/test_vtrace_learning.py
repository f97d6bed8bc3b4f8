"""V-trace learns Catch from old policies, and only because it corrects for them."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.anakin.environments.catch import Catch
from agents.types import LAST
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from tests.agents import lagged_training

pytestmark = pytest.mark.trains

CONFIG = VTraceConfig(unroll_length=20, learning_rate=2e-3, baseline_cost=1.0)
CATCH = Catch()
NUM_ENVS = 32
LAG = 64  # Updates between the parameters that act and those that learn.
FRAMES = 250_000
SOLVED, EPISODES = 0.95, 500


def without_correction(agent, state, unrolls):
  """Pretends that the learner's own policy acted, so that every importance weight is 1."""
  timestep = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), unrolls.timestep)
  output, _ = agent.network.unroll(
    state.params, unrolls.core_state, timestep, jnp.swapaxes(unrolls.action, 0, 1)
  )
  return unrolls._replace(extras={'behaviour_logits': jnp.swapaxes(output.logits, 0, 1)})


@functools.partial(jax.jit, static_argnums=1)
def train(key, corrected):
  """Returns rewards and step types `[updates, T, B]` of a run, in the order of time."""
  agent = VTrace(CONFIG, CATCH.observation_spec, CATCH.action_spec)
  prepare = {} if corrected else {'prepare': functools.partial(without_correction, agent)}
  return lagged_training.train(
    agent, CATCH, key, num_envs=NUM_ENVS, frames=FRAMES, lag=LAG, **prepare
  )


def frames_to_solve(rewards, step_types):
  """Frames until the mean return of the last 500 episodes reaches 0.95, or infinity."""
  rewards, step_types = np.ravel(rewards), np.ravel(step_types)
  frames = np.flatnonzero(step_types == LAST) + 1
  returns = np.convolve(rewards[step_types == LAST], np.ones(EPISODES) / EPISODES, 'valid')
  solved = np.flatnonzero(returns >= SOLVED)
  return frames[solved[0] + EPISODES - 1] if solved.size else np.inf


def test_old_policies_need_the_importance_correction():
  keys = jax.random.split(jax.random.key(0), 4)
  solved = {}
  for corrected in (True, False):
    rewards, step_types = jax.vmap(lambda key, c=corrected: train(key, c))(keys)
    solved[corrected] = [frames_to_solve(r, s) for r, s in zip(rewards, step_types, strict=True)]
  assert np.sum(np.isfinite(solved[True])) >= 3, solved
  assert np.sum(np.isinf(solved[False])) >= 3, solved
