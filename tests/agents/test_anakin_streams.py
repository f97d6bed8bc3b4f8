"""Unrolls as the agents' types say, made by scanning over time."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.anakin import streams
from agents.anakin.environments.catch import Catch
from agents.types import FIRST, LAST
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from tests.agents.hidden_labels import Guessing, HiddenLabels, most_guessed

CATCH = Catch(rows=5)  # Four steps and a FIRST row: 5 rows an episode, and unrolls of 7.
AGENT = VTrace(
  VTraceConfig(unroll_length=7, core='lstm', core_size=8, frame_stack=3, mlp_sizes=(16,)),
  CATCH.observation_spec,
  CATCH.action_spec,
)
NUM_ENVS = 6


@functools.cache
def play(num_unrolls=3):
  """Returns the parameters, and the unrolls and episodes of each of some calls, one version each."""
  params = jax.jit(AGENT.init)(jax.random.key(0)).params
  unroll = jax.jit(lambda *args: streams.unroll(AGENT, CATCH, *args))
  begin = jax.jit(lambda *args: streams.begin(AGENT, CATCH, *args))
  now = begin(params, jnp.int32(0), jnp.ones(NUM_ENVS), jax.random.key(1))
  played = []
  for version in range(num_unrolls):
    now, unrolls, episodes = unroll(params, jnp.int32(version), now)
    played.append(jax.device_get((unrolls, episodes)))
  return params, played


@pytest.mark.slow
def test_replaying_an_unroll_reproduces_what_acted_in_every_row():
  params, played = play()
  replay = jax.jit(AGENT.network.unroll)
  for unrolls, _ in played:
    timestep = jax.tree.map(lambda x: np.swapaxes(x, 0, 1), unrolls.timestep)
    output, _ = replay(params, unrolls.core_state, timestep, np.swapaxes(unrolls.action, 0, 1))
    np.testing.assert_allclose(
      np.swapaxes(output.logits, 0, 1), unrolls.extras['behaviour_logits'], atol=1e-5
    )
  # The core state counts: with the one of another unroll the first rows come out otherwise.
  assert not np.allclose(
    played[1][0].core_state['lstm'][0], played[2][0].core_state['lstm'][0], atol=1e-3
  )


def test_unrolls_are_consecutive_rows_that_share_one():
  _, played = play()
  for unrolls, _ in played:
    assert unrolls.action.shape == (NUM_ENVS, 8)
    assert unrolls.environment_id.tolist() == list(range(NUM_ENVS))
  rows = [(u.timestep, u.action, u.extras) for u, _ in played]
  for before, after in itertools.pairwise(rows):
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[:, -1], b[:, 0]), before, after)
  versions = [u.policy_version[0].tolist() for u, _ in played]
  assert versions == [[0] * 8, [0] + [1] * 7, [1] + [2] * 7]
  step_type = np.concatenate([u.timestep.step_type[:, 1:] for u, _ in played], axis=1)
  assert (np.flatnonzero(step_type[0] == FIRST) % 5 == 4).all() and (step_type == FIRST).sum() > 10


def test_environments_and_decisions_differ():
  _, played = play()
  actions = np.concatenate([u.action[:, 1:] for u, _ in played], axis=1)
  assert len(np.unique(actions, axis=0)) == NUM_ENVS and len(np.unique(actions)) == 3


def test_episodes_are_counted_with_their_raw_returns():
  _, played = play()
  for unrolls, episodes in played:
    step_type, reward = unrolls.timestep.step_type[:, 1:], unrolls.timestep.reward[:, 1:]
    np.testing.assert_array_equal(episodes.actor_steps, (step_type != FIRST).sum(1))
    np.testing.assert_array_equal(episodes.episodes, (step_type == LAST).sum(1))
    # All of Catch's reward comes with the LAST row.
    np.testing.assert_array_equal(episodes.return_sum, (reward * (step_type == LAST)).sum(1))
    np.testing.assert_array_equal(episodes.length_sum, 4 * episodes.episodes)


def test_agent_environment_neighbours_and_other_rows_share_no_random_numbers():
  def play(key):
    agent, environment = Guessing(), HiddenLabels()
    now = streams.begin(agent, environment, (), jnp.int32(0), jnp.ones(64), key)
    return streams.unroll(agent, environment, (), jnp.int32(0), now)[1]

  unrolls = jax.device_get(jax.jit(play)(jax.random.key(1)))
  actions = unrolls.action
  guessed = most_guessed(unrolls.timestep.observation, actions)
  assert abs(guessed - 0.25) < 0.03
  for distance in (1, 2):
    assert abs(np.mean(actions == np.roll(actions, distance, axis=0)) - 0.25) < 0.03
    assert abs(np.mean(actions == np.roll(actions, distance, axis=1)) - 0.25) < 0.03
