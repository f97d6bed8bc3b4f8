"""Anakin learns Catch and Pendulum, and does not where its rows are out of step."""

import jax
import jax.numpy as jnp
import pytest

from agents.anakin.environments import gymnax
from agents.anakin.environments.catch import Catch
from agents.anakin.loop import AnakinLoop
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig

pytestmark = pytest.mark.trains

CATCH = Catch()
STEPS = 250_000


class LateRewards(VTrace):
  """Takes each reward for one that arrived with the next row."""

  def update(self, state, unrolls, probabilities=None):
    reward = jnp.roll(unrolls.timestep.reward, 1, axis=1)
    timestep = unrolls.timestep._replace(reward=reward)
    return super().update(state, unrolls._replace(timestep=timestep))


class LateDraws(VTrace):
  """Takes each draw for one that was made in the next row."""

  def update(self, state, unrolls, probabilities=None):
    draw = jnp.roll(unrolls.extras['draw'], 1, axis=1)
    return super().update(state, unrolls._replace(extras={**unrolls.extras, 'draw': draw}))


def best_returns(loop, num_steps):
  """Trains with two seeds; returns the best mean return of the episodes that ended in one call."""
  best = []
  for seed in range(2):
    state, returns = loop.init(jax.random.key(seed)), []
    for _ in range(num_steps // loop.steps_per_call):
      state, report = loop.train(state)
      episodes = jax.device_get(report.episodes)
      returns.append(float(episodes.return_sum / episodes.episodes))
    best.append(max(returns))
  return best


@pytest.mark.parametrize('agent_class, learns', [(VTrace, True), (LateRewards, False)])
def test_catch(agent_class, learns):
  agent = agent_class(VTraceConfig(learning_rate=2e-3), CATCH.observation_spec, CATCH.action_spec)
  loop = AnakinLoop(agent, CATCH, 64, jax.devices()[:1], updates_per_call=10)
  best = best_returns(loop, STEPS)
  # A random policy has -0.6. Calibrated: above 0.95 on each of the seeds.
  assert all((r > 0.9) == learns for r in best), best


@pytest.mark.nightly
@pytest.mark.parametrize('agent_class, learns', [(VTrace, True), (LateDraws, False)])
def test_pendulum(agent_class, learns):
  environment = gymnax.make('Pendulum-v1')
  config = VTraceConfig(
    discount=0.95,
    vtrace_lambda=0.95,
    unroll_length=10,
    reward_scale=0.1,
    entropy_cost=0.03,
    learning_rate=2e-3,
    max_gradient_norm=1.0,
    mlp_sizes=(64, 64),
  )
  agent = agent_class(config, environment.observation_spec, environment.action_spec)
  loop = AnakinLoop(agent, environment, 32, jax.devices()[:1], updates_per_call=50)
  best = best_returns(loop, 800_000)
  # Calibrated: -170 and -170; out of step -1105 and -1353.
  assert all((r > -350) == learns for r in best), best
