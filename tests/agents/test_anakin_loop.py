"""Anakin's loop is the same run however it is cut up, spread out or driven."""

import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents import shapes
from agents.anakin import streams
from agents.anakin.environment import next_row
from agents.anakin.environments.catch import Catch
from agents.anakin.evaluation import Evaluation
from agents.anakin.loop import AnakinLoop
from agents.types import Timestep, Unroll
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from tests.agents.subprocesses import run_python

CATCH = Catch()
# A large epsilon: Adam would blow rounding errors of tiny gradients up to whole steps.
CONFIG = VTraceConfig(
  unroll_length=6, mlp_sizes=(16,), core='lstm', core_size=8, learning_rate=1e-2, adam_eps=1e-3
)
AGENT = VTrace(CONFIG, CATCH.observation_spec, CATCH.action_spec)
NUM_ENVS = 8


def make_loop(updates_per_call=1, agent=AGENT):
  return AnakinLoop(agent, CATCH, NUM_ENVS, jax.devices()[:1], updates_per_call)


@functools.cache
def loop_of_two():
  """Returns a loop of 2 updates a call, compiled once for the tests that do not change it."""
  return make_loop(updates_per_call=2)


def train(loop, calls, seed=1):
  state = loop.init(jax.random.key(seed))
  for _ in range(calls):
    state, report = loop.train(state)
  return jax.device_get((state, report))


def driven_by_python(num_updates, seed=1):
  """Returns the learner state of a run whose every row and update is a call from Python."""
  state = jax.device_get(make_loop().init(jax.random.key(seed)))
  learner, now = state.learner, state.streams
  act, update = jax.jit(AGENT.act), jax.jit(AGENT.update)
  step = jax.jit(jax.vmap(lambda *args: next_row(CATCH, *args)))
  environment, core_state, row = now.environment, now.after, now.row
  keys = jax.random.wrap_key_data(now.key)
  before = now.before
  for version in range(num_updates):
    rows, first_core_state = [row], before
    for _ in range(CONFIG.unroll_length):
      keys, use, act_keys = jnp.stack([jax.random.split(key, 3) for key in keys]).T
      environment, timestep = step(environment, row.timestep.step_type, row.action, use)
      before = core_state
      answer = act(learner.params, core_state, timestep, now.exploration, act_keys)
      core_state = answer.core_state
      row = streams.Row(
        timestep, answer.action, answer.extras, np.full(NUM_ENVS, version, np.int32)
      )
      rows.append(row)
    batch = jax.tree.map(lambda *x: np.stack(x, axis=1), *jax.device_get(rows))
    unrolls = Unroll(
      Timestep(*batch.timestep),
      batch.action,
      batch.extras,
      batch.policy_version,
      first_core_state,
      np.arange(NUM_ENVS),
    )
    learner = update(learner, unrolls, None).state
  return learner


def assert_close(actual, expected, atol):
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol), actual, expected)


@pytest.mark.slow
def test_updates_in_one_call_equal_those_driven_from_python():
  state, report = train(make_loop(updates_per_call=5), 1)
  assert state.learner.learner_steps == 5 and report.metrics['loss'].shape == (5,)
  fresh = jax.device_get(make_loop().init(jax.random.key(1))).learner.params
  moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), state.learner.params, fresh)
  assert max(jax.tree.leaves(moved)) > 1e-2
  one_by_one, _ = train(make_loop(), 5)
  assert_close(state, one_by_one, atol=1e-5)
  assert_close(state.learner, driven_by_python(5), atol=1e-5)


@pytest.mark.slow
def test_a_seed_is_a_run_to_the_bit():
  loop = make_loop(updates_per_call=3)
  first, again, other = train(loop, 2), train(make_loop(3), 2), train(loop, 2, seed=2)
  jax.tree.map(np.testing.assert_array_equal, first, again)
  assert not np.array_equal(first[0].streams.row.action, other[0].streams.row.action)


@pytest.mark.slow
def test_nothing_is_transferred_within_a_call_and_the_learner_state_stays_valid():
  loop = loop_of_two()
  state = loop.init(jax.random.key(1))
  text = loop.compile(state)
  assert 'callback' not in text and 'infeed' not in text and 'outfeed' not in text
  with jax.transfer_guard('disallow'):
    later, report = loop.train(state)
    with pytest.raises(Exception, match=r'[Dd]isallowed'):  # The guard is awake.
      jnp.add(report.episodes.episodes, np.ones(3))
  jax.device_get(state.learner)
  assert state.streams.row.action.is_deleted()
  assert int(later.learner.learner_steps) == 2


@pytest.mark.slow
@pytest.mark.parametrize(  # With cheap resets, and expensive ones.
  'agent', ['vtrace', pytest.param('levels', marks=pytest.mark.nightly)]
)
def test_eight_devices_do_what_one_does_with_all_reduces_only(agent):
  script = pathlib.Path(__file__).with_name('anakin_devices.py')
  flags = {'XLA_FLAGS': '--xla_force_host_platform_device_count=8', 'JAX_PLATFORMS': 'cpu'}
  lines = dict(line.split(' ', 1) for line in run_python(str(script), agent, **flags).splitlines())
  assert float(lines['moved']) > 1e-2
  assert float(lines['learner']) < 1e-5, lines
  assert float(lines['streams']) < 1e-5, lines
  assert lines['collectives'] == 'all-reduce', lines
  assert lines['devices'] == '8'


def test_what_does_not_divide_is_rejected():
  with pytest.raises(ValueError, match='--num_envs=8 does not divide over 3 devices'):
    AnakinLoop(AGENT, CATCH, NUM_ENVS, jax.devices()[:1] * 3)


def test_more_rows_than_a_call_can_count_are_rejected():
  with pytest.raises(
    ValueError, match=r'--updates_per_call=.* unrolls of 6 rows in each of --num_envs=8 '
  ):
    make_loop(2**31 // (NUM_ENVS * CONFIG.unroll_length) + 1)


@pytest.mark.slow
def test_lengths_that_add_up_to_more_than_an_int32_are_counted():
  loop = loop_of_two()
  state = loop.init(jax.random.key(1))
  lengths = jnp.full_like(state.streams.episode_length, 2**30)
  _, report = loop.train(state._replace(streams=state.streams._replace(episode_length=lengths)))
  assert report.episodes.episodes >= NUM_ENVS
  assert float(report.episodes.length_sum) == pytest.approx(NUM_ENVS * 2**30, rel=1e-5)


@pytest.mark.slow
def test_a_metric_that_is_not_finite_is_noticed_in_whichever_update():
  class Broken(VTrace):
    def update(self, state, unrolls, probabilities=None):
      output = super().update(state, unrolls)
      loss = jnp.where(state.learner_steps == 1, jnp.nan, output.metrics['loss'])
      return output._replace(metrics={**output.metrics, 'loss': loss})

  broken = Broken(CONFIG, CATCH.observation_spec, CATCH.action_spec)
  _, report = train(make_loop(3, broken), 1)
  assert not report.finite
  assert np.isfinite(report.metrics['loss']).tolist() == [True, False, True]
  assert train(make_loop(3), 1)[1].finite


class Scripted(VTrace):
  """Goes after the ball if the parameters say so, else stays where it is."""

  def act(self, params, core_state, timestep, exploration, keys):
    answer = super().act(params['net'], core_state, timestep, exploration, keys)
    board = timestep.observation
    ball, paddle = jnp.argmax(board[:, :-1].sum(1), axis=1), jnp.argmax(board[:, -1], axis=1)
    action = jnp.where(params['chase'], jnp.sign(ball - paddle) + 1, 1)
    return answer._replace(action=action.astype(jnp.int32))


@pytest.mark.slow
def test_an_evaluation_takes_as_many_episodes_of_each_environment():
  agent = Scripted(CONFIG, CATCH.observation_spec, CATCH.action_spec)
  net = jax.jit(agent.init)(jax.random.key(0)).params
  evaluation = Evaluation(agent, CATCH, num_envs=50, episodes_each=3, rows_per_call=7)
  for chase in (True, False):
    params = {'net': net, 'chase': jnp.asarray(chase)}
    state, calls = evaluation.begin(params, jax.random.key(3)), 0
    while evaluation.rounds(state) < 3:
      state, calls = evaluation.play(params, state), calls + 1
    assert calls == 5  # 3 episodes are 29 rows after the first.
    returns = np.asarray(state.returns)
    assert returns.shape == (50, 3)
    if chase:
      assert (returns == 1).all()
    else:  # One ball in five falls on a paddle that stays in the middle.
      assert set(np.unique(returns)) == {-1, 1} and -0.85 < returns.mean() < -0.3


@pytest.mark.slow
def test_an_evaluation_counts_a_long_episode_with_its_return_so_far_and_nothing_after_it():
  agent = Scripted(CONFIG, CATCH.observation_spec, CATCH.action_spec)
  net = jax.jit(agent.init)(jax.random.key(0)).params
  params = {'net': net, 'chase': jnp.asarray(True)}
  evaluation = Evaluation(agent, CATCH, 4, episodes_each=3, rows_per_call=8, max_episode_steps=8)
  state = evaluation.begin(params, jax.random.key(3))
  assert evaluation.rounds(state) == 0 and not evaluation.was_cut(state)
  for _ in range(5):  # 9 steps after the reset are a whole episode, with return 1.
    state = evaluation.play(params, state)
    assert evaluation.rounds(state) == 1 and evaluation.was_cut(state)
  np.testing.assert_array_equal(state.returns, np.zeros((4, 3)))
  whole = Evaluation(agent, CATCH, 4, episodes_each=3, rows_per_call=40, max_episode_steps=9)
  state = whole.play(params, whole.begin(params, jax.random.key(3)))
  assert whole.rounds(state) == 3 and not whole.was_cut(state)


@pytest.mark.slow
def test_an_evaluation_that_is_compiled_ahead_is_the_same():
  params, key = jax.jit(AGENT.init)(jax.random.key(0)).params, jax.random.key(5)
  found = []
  for ahead in (False, True):
    evaluation = Evaluation(AGENT, CATCH, num_envs=4, episodes_each=2, rows_per_call=12)
    if ahead:
      evaluation.compile(shapes.params(AGENT), jax.eval_shape(lambda: key))
    state = evaluation.begin(jax.device_get(params), key)
    found.append(jax.device_get(evaluation.play(params, evaluation.play(params, state)).returns))
  np.testing.assert_array_equal(*found)


def test_an_evaluation_is_greedy_and_the_same_each_time():
  params = jax.jit(AGENT.init)(jax.random.key(0)).params
  evaluation = Evaluation(AGENT, CATCH, num_envs=4, episodes_each=1, rows_per_call=12)
  once, again = (
    evaluation.play(params, evaluation.begin(params, jax.random.key(5))) for _ in range(2)
  )
  np.testing.assert_array_equal(once.returns, again.returns)
  row = once.streams.row
  np.testing.assert_array_equal(row.action, np.argmax(row.extras['behaviour_logits'], axis=-1))


def test_on_cpus_no_gradient_of_a_convolution_is_computed_by_xla_in_the_loop():
  # XLA takes tens of times longer for it in a loop than outside.
  config = VTraceConfig(torso='impala', hidden_size=8)
  loop = make_loop(agent=VTrace(config, CATCH.observation_spec, CATCH.action_spec))
  program = loop.compile(loop.init(jax.random.key(1)))
  convolutions = [line for line in program.splitlines() if ' convolution(' in line]
  assert convolutions
  assert not [line for line in convolutions if 'transpose(' in line]
