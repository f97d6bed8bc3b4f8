"""Anakin's loop with observations that are nests, and with an action mask."""

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.anakin.environments.catch import Catch
from agents.anakin.loop import AnakinLoop
from agents.types import LAST
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig


class NestedCatch(Catch):
  """Catch that shows ball and paddle apart, and that the paddle cannot leave the board."""

  def __init__(self):
    super().__init__(rows=4, columns=3)
    self.observation_spec = {
      'board': dm_env.specs.Array((4, 3), bool),
      'paddle': dm_env.specs.DiscreteArray(3, np.int32),
      'action_mask': dm_env.specs.Array((3,), bool),
    }

  def _observe(self, state):
    cells = jnp.arange(4)[:, None] == state.ball_row, jnp.arange(3) == state.ball_column
    mask = jnp.stack([state.paddle > 0, True, state.paddle < 2])
    return {'board': cells[0] & cells[1], 'paddle': state.paddle, 'action_mask': mask}


@pytest.mark.slow
def test_a_loop_learns_from_nests_and_acts_legally():
  environment = NestedCatch()
  config = VTraceConfig(unroll_length=3, mlp_sizes=(8,), hidden_size=8)
  agent = VTrace(config, environment.observation_spec, environment.action_spec)
  loop = AnakinLoop(agent, environment, 16, jax.devices()[:1], 1)
  state = loop.init(jax.random.key(0))
  masks, chosen = [], []
  for _ in range(10):
    state, _ = loop.train(state)
    row = jax.device_get(state.streams.row)
    going_on = row.timestep.step_type != LAST
    mask = row.timestep.observation['action_mask']
    masks.append(mask[going_on])
    chosen.append(np.take_along_axis(mask, row.action[:, None], -1)[going_on])
  masks, chosen = np.concatenate(masks), np.concatenate(chosen)
  assert len(chosen) > 50 and chosen.all() and not masks.all()
  finite = jax.tree.map(lambda x: bool(np.isfinite(x).all()), jax.device_get(state.learner.params))
  assert jax.tree.all(finite)
