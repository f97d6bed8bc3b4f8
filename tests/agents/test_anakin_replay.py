"""Anakin's loop with replay is the same run however it is cut up, spread out or driven."""

import functools
import itertools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.anakin import ring as rings
from agents.anakin import streams
from agents.anakin.environments.catch import Catch
from agents.anakin.limits import RingSizes
from agents.anakin.loop import AnakinLoop
from agents.r2d2.agent import R2D2
from agents.r2d2.config import R2D2Config
from tests.agents.subprocesses import run_python
from tests.agents.test_anakin_loop import assert_close

pytestmark = pytest.mark.slow

CATCH = Catch(rows=5)
# Unrolls of 6 rows start every 3 rows: 2 rows are in the next one too, besides the one at its start.
CONFIG = R2D2Config(
  burn_in=2,
  unroll_length=3,
  n_step=2,
  mlp_sizes=(8,),
  core_size=8,
  head_size=8,
  learning_rate=1e-2,
  target_update_period=2,
)
AGENT = R2D2(CONFIG, CATCH.observation_spec, CATCH.action_spec)
NUM_ENVS = 8
# Learning starts with the third complete unroll; the fifth replaces the first.
SIZES = RingSizes(
  num_rings=4, slots=4, min_slots=3, batch_size=8, updates_per_unroll=2, priority_exponent=0.7
)
INCOMPLETE = 1


@functools.cache
def make_loop(iterations=1):
  return AnakinLoop(AGENT, CATCH, NUM_ENVS, jax.devices()[:1], 2 * iterations, SIZES)


def train(loop, calls):
  state, reports = loop.init(jax.random.key(1)), []
  for _ in range(calls):
    state, report = loop.train(state)
    reports.append(report)
  return jax.device_get((state, reports))


@functools.cache
def trained():
  """Returns the state after 7 unrolls, one a call, and the report of each call."""
  return train(make_loop(), 7)


def test_unrolls_overlap_and_begin_with_the_core_state_that_acted():
  params = jax.jit(AGENT.init)(jax.random.key(0)).params
  begin = jax.jit(lambda key: streams.begin(AGENT, CATCH, params, jnp.int32(0), jnp.ones(6), key))
  unroll = jax.jit(lambda now: streams.unroll(AGENT, CATCH, params, jnp.int32(0), now))
  now, played = begin(jax.random.key(1)), []
  assert streams.num_incomplete(AGENT) == INCOMPLETE
  for _ in range(5):
    now, unrolls, episodes = unroll(now)
    played.append(jax.device_get(unrolls))
    fresh = played[-1].timestep.step_type[:, -CONFIG.unroll_length :]
    np.testing.assert_array_equal(episodes.actor_steps, (fresh != 0).sum(1))
  complete = played[INCOMPLETE:]
  rows = [(u.timestep, u.action, u.extras) for u in complete]
  for before, after in itertools.pairwise(rows):
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[:, 3:], b[:, :3]), before, after)
  replay = jax.jit(AGENT.network.unroll)
  for unrolls in complete:
    swap = functools.partial(jax.tree.map, lambda x: np.swapaxes(x, 0, 1))
    rows = swap((unrolls.timestep, unrolls.action))
    q_values, _ = replay(params, unrolls.core_state, *rows)
    np.testing.assert_allclose(swap(q_values), unrolls.extras['q_values'], atol=1e-5)
  assert np.abs(complete[2].core_state['lstm'][0]).max() > 1e-3


def driven_by_python(num_unrolls):
  """Returns learner and rings of a run whose every insert, sample and update is a call from Python."""
  learner, now, ring = make_loop().init(jax.random.key(1))
  unroll = jax.jit(lambda *args: streams.unroll(AGENT, CATCH, *args))
  update, insert = jax.jit(AGENT.update), jax.jit(rings.insert)
  sample = jax.jit(functools.partial(rings.sample, batch_size=2))
  for _ in range(num_unrolls):
    now, unrolls, _ = unroll(learner.params, learner.learner_steps, now)
    ring = insert(ring, unrolls, AGENT.initial_priorities(unrolls) ** 0.7)
    for _ in range(2 if ring.count >= 3 else 0):
      key, batch = sample(ring)
      learner, priorities, _ = update(learner, batch.unrolls, batch.probabilities)
      weights = rings.reweigh(ring.weights, batch.place, priorities**0.7)
      ring = ring._replace(key=key, weights=weights)
  return jax.device_get((learner, ring))


def test_a_compiled_run_equals_one_driven_from_python():
  state, _ = trained()
  learner, ring = driven_by_python(7)
  assert_close(state.learner, learner, atol=1e-5)
  assert_close(state.replay, ring, atol=1e-5)
  assert state.replay.count == 7 - INCOMPLETE
  assert (state.replay.unrolls.policy_version.max(axis=(0, 2, 3)) == [4, 6, 0, 2]).all()


def test_updates_follow_each_unroll_in_a_fixed_ratio_once_replay_is_filled():
  state, reports = trained()
  assert [int(report.learner_steps) for report in reports] == [0, 0, 0, 2, 4, 6, 8]
  assert [bool((report.metrics['loss'] > 0).all()) for report in reports] == [False] * 3 + [
    True
  ] * 4
  steps = sum(int(report.episodes.actor_steps) for report in reports)
  assert 7 * 3 * NUM_ENVS * 0.7 < steps < 7 * 3 * NUM_ENVS
  fresh = jax.device_get(make_loop().init(jax.random.key(1))).learner.params
  moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), state.learner.params, fresh)
  assert max(jax.tree.leaves(moved)) > 1e-2


def test_a_run_may_be_split_anywhere():
  state, reports = train(make_loop(7), 1)
  expected, each = trained()
  assert_close(state, expected, atol=1e-5)
  losses = np.concatenate([report.metrics['loss'] for report in each])
  np.testing.assert_allclose(reports[0].metrics['loss'], losses, atol=1e-5)
  restored = make_loop().put(expected)
  jax.tree.map(np.testing.assert_array_equal, jax.device_get(restored), expected)
  shapes = make_loop().shapes()
  jax.tree.map(
    lambda a, b: np.testing.assert_equal((a.shape, a.dtype), (b.shape, b.dtype)), shapes, expected
  )


def test_the_replay_is_donated_and_the_learner_state_stays_valid():
  loop = make_loop()
  state = loop.init(jax.random.key(1))
  later, _ = loop.train(state)
  assert state.replay.unrolls.action.is_deleted() and not state.learner.learner_steps.is_deleted()
  unrolls = jax.tree.leaves(later.replay.unrolls)
  assert loop.replay_bytes > sum(x.nbytes for x in unrolls) > 0.9 * loop.replay_bytes


def test_every_ring_has_environments_of_the_whole_range_of_exploration():
  exploration = np.asarray(make_loop().init(jax.random.key(1)).streams.exploration)
  ranked = (
    (-exploration).argsort().argsort().reshape(4, 2)
  )  # Environments of a ring are neighbours.
  assert ranked.tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_eight_devices_do_what_one_does_with_all_reduces_only():
  script = pathlib.Path(__file__).with_name('anakin_devices.py')
  quick = '--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0'
  flags = {'XLA_FLAGS': quick, 'JAX_PLATFORMS': 'cpu'}
  lines = dict(line.split(' ', 1) for line in run_python(str(script), 'r2d2', **flags).splitlines())
  assert float(lines['moved']) > 1e-3
  for part in ('learner', 'streams', 'replay'):
    assert float(lines[part]) < 1e-5, lines
  assert lines['collectives'] == 'all-reduce', lines
  assert lines['devices'] == '8'


@pytest.mark.parametrize(
  'sizes, words',
  [
    ({'num_rings': 3}, '--num_envs=8 does not divide over --num_replay_shards=3'),
    ({'batch_size': 6}, '--batch_size=6 does not divide over --num_replay_shards=4'),
    ({'updates_per_unroll': 4}, '--updates_per_call=2 is not a multiple of the 4 learner steps'),
  ],
)
def test_what_does_not_divide_is_rejected(sizes, words):
  sizes = RingSizes(**vars(SIZES) | sizes)
  with pytest.raises(ValueError, match=words):
    AnakinLoop(AGENT, CATCH, NUM_ENVS, jax.devices()[:1], 2, sizes)
  with pytest.raises(ValueError, match='without replay'):
    AnakinLoop(AGENT, CATCH, NUM_ENVS, jax.devices()[:1], 2)
