"""R2D2 learns a game that only memory can win, from unrolls that begin anywhere in it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.anakin.environments.catch import Catch
from agents.r2d2.agent import R2D2
from agents.r2d2.config import R2D2Config
from agents.types import FIRST
from tests.agents.replay_loop import late_returns, train

pytestmark = pytest.mark.slow

# 10 rows are an episode, and an unroll starts every 7: at each row of an episode in turn.
CONFIG = R2D2Config(
  burn_in=2,
  unroll_length=7,
  n_step=3,
  discount=0.99,
  mlp_sizes=(32,),
  lstm_size=32,
  head_size=32,
  target_update_period=100,
  learning_rate=2e-3,
  adam_eps=1e-4,
)
NUM_ENVS, BATCH_SIZE, CAPACITY, UPDATES = 32, 64, 100, 2000
CATCH = Catch()


def hide_ball(timestep):
  """Blanks all but the row of the paddle after the first look at the board."""
  seen = (timestep.step_type == FIRST)[:, None, None]
  rows = CATCH.observation_spec.shape[0]
  paddle = (jnp.arange(rows) == rows - 1)[:, None]
  return timestep._replace(observation=jnp.where(seen | paddle, timestep.observation, 0.0))


def test_catch_with_one_look_at_the_ball():
  # Without memory the first move, of three, decides where the paddle ends: it catches 3 balls of 5
  # at best, a mean return of 0.2.
  agent = R2D2(CONFIG, CATCH.observation_spec, CATCH.action_spec)
  played = train(
    agent,
    CATCH,
    jax.random.key(0),
    sizes=(NUM_ENVS, BATCH_SIZE, CAPACITY, UPDATES),
    priority_exponent=0.9,
    observe=hide_ball,
  )
  greedy = np.s_[:, :, NUM_ENVS * 2 // 3 :]
  returns = late_returns(tuple(x[greedy] for x in played))
  assert returns.size > 1000
  assert np.mean(returns) > 0.8, np.mean(returns)
