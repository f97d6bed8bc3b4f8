"""Anakin learns Catch, and does not where its rows are out of step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.anakin.environments.catch import Catch
from agents.anakin.loop import AnakinLoop
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig

CATCH = Catch()
STEPS = 250_000


class LateRewards(VTrace):
  """Takes each reward for one that arrived with the next row."""

  def update(self, state, unrolls, probabilities=None):
    reward = jnp.roll(unrolls.timestep.reward, 1, axis=1)
    timestep = unrolls.timestep._replace(reward=reward)
    return super().update(state, unrolls._replace(timestep=timestep))


@pytest.mark.parametrize('agent_class, learns', [(VTrace, True), (LateRewards, False)])
def test_catch(agent_class, learns):
  agent = agent_class(VTraceConfig(learning_rate=2e-3), CATCH.observation_spec, CATCH.action_spec)
  loop = AnakinLoop(agent, CATCH, 64, jax.devices()[:1], updates_per_call=10)
  solved = []
  for seed in range(3):
    state, best = loop.init(seed), -1.0
    for _ in range(STEPS // loop.steps_per_call):
      state, report = loop.train(state)
      episodes = jax.device_get(report.episodes)
      best = max(best, float(episodes.return_sum / episodes.episodes))
    solved.append(best > 0.9)
  # A random policy has -0.6. Calibrated: above 0.95 on each of the seeds.
  assert np.all(solved) if learns else not np.any(solved), solved
