"""MuZero learns Catch with two simulations by Gumbel's search, which is too few for PUCT."""

from __future__ import annotations

import jax
import pytest

from agents.anakin.environments.catch import Catch
from agents.anakin.limits import RingSizes
from agents.anakin.loop import AnakinLoop
from agents.muzero.agent import MuZero
from agents.muzero.config import MuZeroConfig

pytestmark = [pytest.mark.trains, pytest.mark.nightly]  # It compiles for half a minute.

CATCH = Catch(rows=6)
RINGS = RingSizes(
  num_rings=8, slots=60, min_slots=4, batch_size=64, updates_per_unroll=1, priority_exponent=0.6
)


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
  loop = AnakinLoop(agent, CATCH, 16, jax.devices()[:1], updates_per_call=100, rings=RINGS)
  state = loop.init(jax.random.key(0))
  for _ in range(5):
    state, report = loop.train(state)
  played = jax.device_get(report.episodes)
  assert played.episodes > 1000
  assert low < played.return_sum / played.episodes <= high, played
