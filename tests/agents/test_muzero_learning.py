"""MuZero learns Catch with two simulations by Gumbel's search, which is too few for PUCT."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from agents.anakin.environments.catch import Catch
from agents.muzero.agent import MuZero
from agents.muzero.config import MuZeroConfig
from tests.agents.replay_loop import late_returns, train

pytestmark = [pytest.mark.slow, pytest.mark.nightly]  # It compiles for half a minute.

CATCH = Catch(rows=6)


@pytest.mark.parametrize(('search', 'low', 'high'), [('gumbel', 0.8, 1.0), ('puct', -1.0, 0.5)])
def test_two_simulations(search, low, high):
  config = MuZeroConfig(
    search=search,
    num_simulations=2,
    mlp_sizes=(64,),
    hidden_state_size=64,
    head_size=64,
    unroll_length=8,
    discount=0.99,
    num_bins=21,
    max_bin=10.0,
    updates_per_batch=8,
    learning_rate=2e-3,
    target_update_period=12,
  )
  agent = MuZero(config, CATCH.observation_spec, CATCH.action_spec)
  sizes = (16, 64, 60, 500)
  returns = late_returns(train(agent, CATCH, jax.random.key(0), sizes=sizes, priority_exponent=0.6))
  assert returns.size > 1000
  assert low < np.mean(returns) <= high, np.mean(returns)
