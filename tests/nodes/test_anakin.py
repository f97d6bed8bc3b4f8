"""Anakin's node and its evaluator, with real servers and without a launcher."""

import concurrent.futures
import dataclasses
import errno
import functools
import threading

import jax
import numpy as np
import pytest
from dm_env import specs
from flax import serialization

from agents.anakin.environments.catch import Catch
from agents.anakin.evaluation import Evaluation
from agents.anakin.limits import RingSizes
from agents.r2d2.agent import R2D2
from agents.r2d2.config import R2D2Config
from agents.seeding import Seed
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from nodes.anakin import Anakin
from nodes.evaluation.compiled import CompiledPlayer
from nodes.evaluator import Evaluator
from nodes.learning.options import LoopOptions
from nodes.monitor import Monitor
from nodes.runtime import lifecycle
from nodes.runtime.options import EvaluationOptions, RunOptions
from rundir import checkpoints, saved_params
from tests.agents.levels import Levels
from tests.waiting import DEADLINE, wait_until


def make_agent(observation_spec, action_spec):
  return VTrace(VTraceConfig(unroll_length=5, mlp_sizes=(16,)), observation_spec, action_spec)


def make_node(
  run_dir,
  monitor,
  make_environment=Catch,
  make_agent=make_agent,
  num_steps=500,
  checkpoint_period=1e9,
  seed=None,
  rings=None,
  **options,
):
  loop = LoopOptions(**{'num_envs': 8, 'updates_per_call': 2} | options)
  run = RunOptions(num_steps=num_steps, run_dir=str(run_dir), checkpoint_period=checkpoint_period)
  return Anakin(make_agent, make_environment, monitor, loop, run, seed=seed or Seed(1), rings=rings)


def evaluation(episodes):
  return EvaluationOptions(
    eval_envs=5, eval_episodes=episodes, eval_period=100, eval_share=1.0, eval_seconds=0.0
  )


def start(node):
  """Runs a node in a thread; returns it. What the node raises is in its `error`."""

  def run():
    try:
      node.run()
    except BaseException as error:
      thread.error = error

  thread = threading.Thread(target=run, daemon=True)
  thread.error = None
  thread.start()
  return thread


def wait_for(condition, thread):
  def check():
    assert thread.is_alive(), thread.error

  wait_until(condition, check, DEADLINE)


def run_to_the_end(run_dir, connect, stop, **options):
  """Runs a node until it says that training has finished; returns what the monitor counted."""
  run_dir.mkdir(exist_ok=True)
  stop.clear()
  monitor = Monitor(str(run_dir), num_steps=500, evaluators=[])
  thread = start(make_node(run_dir, connect(monitor), **options))
  wait_for(lambda: monitor.progress()['finished'], thread)
  stop.set()
  thread.join(DEADLINE)
  assert not thread.is_alive() and thread.error is None
  return monitor.status()['counts']


@pytest.mark.slow
def test_it_trains_and_sends_its_parameters_to_the_evaluator(tmp_path, connect, stop):
  monitor = Monitor(str(tmp_path), num_steps=500, evaluators=['evaluator/0'])
  node = make_node(tmp_path, connect(monitor))
  thread = start(node)
  client = connect(node)
  arguments, options = (make_agent, Catch, client, None), evaluation(episodes=12)
  Evaluator(CompiledPlayer, arguments, connect(monitor), 'evaluator/0', options, Seed(1)).run()
  status = monitor.status()
  assert status['finished'] and status['latest']['evaluator/0']['evaluator_episodes'] == 15
  won = 15 * (1 + status['latest']['evaluator/0']['evaluator_return']) / 2  # Of returns 1 and -1.
  assert round(won, 3) in range(16)
  # Of 10 rows of an episode, 9 are executed decisions: 7 calls of 2 x 8 x 5 rows are 504 of them.
  assert status['counts'] == {'actor_steps': 504, 'environment_frames': 504, 'learner_steps': 14}
  assert status['latest']['anakin/0']['episode_length'] == 9

  counts, params = client.get_params()
  assert counts == status['counts']
  assert status['latest']['evaluator/0']['evaluated_frames'] == 504
  with open(tmp_path / 'params' / 'final.msgpack', 'rb') as f:
    written = serialization.from_bytes(params, f.read())
  jax.tree.map(np.testing.assert_array_equal, written, params)
  stop.set()
  thread.join(DEADLINE)
  assert not thread.is_alive() and thread.error is None


def make_r2d2(observation_spec, action_spec):
  config = R2D2Config(
    burn_in=1, unroll_length=5, n_step=2, core='none', mlp_sizes=(16,), head_size=8
  )
  return R2D2(config, observation_spec, action_spec)


# 500 steps are 14 unrolls, of which the replay holds 4; the first is incomplete.
REPLAY = {
  'make_agent': make_r2d2,
  'rings': RingSizes(
    num_rings=4, slots=4, min_slots=2, batch_size=8, updates_per_unroll=1, priority_exponent=0.9
  ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
  'options, updates',
  [
    ({}, 14),
    (REPLAY, 12),
    ({'make_environment': Levels}, 16),
  ],  # States of dataclasses with typed keys.
)
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, connect, stop, options, updates):
  straight, halted = tmp_path / 'straight', tmp_path / 'halted'
  counts = run_to_the_end(straight, connect, stop, **options)
  assert counts['learner_steps'] == updates
  half = run_to_the_end(halted, connect, stop, num_steps=250, **options)
  assert 0 < half['learner_steps'] < counts['learner_steps']
  assert run_to_the_end(halted, connect, stop, seed=Seed(2), **options) == counts
  results = [(d / 'params' / 'final.msgpack').read_bytes() for d in (straight, halted)]
  assert results[0] == results[1]


@pytest.mark.slow
def test_a_run_starts_with_anothers_parameters_but_resumes_with_its_own(tmp_path, connect, stop):
  def hardly_learning(*specs):
    return VTrace(VTraceConfig(unroll_length=5, mlp_sizes=(16,), learning_rate=1e-30), *specs)

  first, second = tmp_path / 'first', tmp_path / 'second'
  run_to_the_end(first, connect, stop)
  saved_params.write_initial(str(second), saved_params.read(str(first)))
  counts = run_to_the_end(second, connect, stop, make_agent=hardly_learning, seed=Seed(2))
  assert counts['learner_steps'] == 14
  before, after = (
    serialization.msgpack_restore(saved_params.read(str(d)).content) for d in (first, second)
  )
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-9), before, after)
  (second / 'params' / 'initial.msgpack').write_bytes(b'not read again')
  more = run_to_the_end(second, connect, stop, num_steps=1000, make_agent=hardly_learning)
  assert more['learner_steps'] == 28


@pytest.mark.slow
def test_a_stopped_run_leaves_a_checkpoint(tmp_path, connect, stop):
  monitor = Monitor(str(tmp_path), num_steps=10**9, evaluators=[])
  thread = start(make_node(tmp_path, connect(monitor), num_steps=10**9))
  wait_for(lambda: monitor.progress()['actor_steps'] > 0, thread)
  stop.set()
  thread.join(DEADLINE)
  assert not thread.is_alive() and thread.error is None
  counts = checkpoints.newest(checkpoints.directory(str(tmp_path))).counts
  assert counts['actor_steps'] > 0 and counts['learner_steps'] % 2 == 0
  assert not (tmp_path / 'params').exists()


@pytest.mark.slow
def test_a_run_that_ends_on_a_full_disk_waits_for_room_for_its_last_checkpoint(
  tmp_path, connect, stop, monkeypatch
):
  full, write = [True], checkpoints.write

  def sometimes(*args):
    if full:
      full.pop()
      raise OSError(errno.ENOSPC, 'No space left on device')
    return write(*args)

  monkeypatch.setattr(checkpoints, 'write', sometimes)
  counts = run_to_the_end(tmp_path, connect, stop)
  assert checkpoints.newest(checkpoints.directory(str(tmp_path))).counts == counts


def test_an_evaluator_compiles_and_waits_for_parameters_before_the_first_evaluation(
  tmp_path, stop, monkeypatch
):
  """So neither counts against an evaluation's time."""
  called = []

  class Recorded(Evaluation):
    def compile(self, params, key):
      super().compile(params, key)
      called.append('compile')

  class Served:
    """Stands for the clients of the loop and of a monitor that knows of finished training."""

    futures = property(lambda self: self)

    def __getattr__(self, method):
      def call(*args):
        called.append(method)
        future = concurrent.futures.Future()
        future.set_result(
          {'progress': {'finished': True, 'actor_steps': 1}, 'get_params': found}.get(method)
        )
        return future

      return call

  agent = make_agent(Catch().observation_spec, Catch().action_spec)
  found = {'environment_frames': 1}, jax.device_get(agent.init(jax.random.key(0)).params)
  monkeypatch.setattr('nodes.evaluation.compiled.Evaluation', Recorded)
  arguments, options = (make_agent, Catch, Served(), None), evaluation(episodes=5)
  Evaluator(CompiledPlayer, arguments, Served(), 'evaluator/0', options, Seed(1)).run()
  assert called == ['compile', 'get_params', 'progress', 'get_params', 'final_evaluation']


class NotANumber(Catch):
  """Gives a reward that is none at the end of the first episodes, in learner step 2."""

  def step(self, state, action, key):
    state, timestep = super().step(state, action, key)
    return state, timestep._replace(reward=timestep.reward / (timestep.step_type != 2))


class Bytes(Catch):
  def __init__(self):
    super().__init__()
    self.observation_spec = specs.Array((10, 5), np.uint8)


NORMALIZING = functools.partial(VTrace, VTraceConfig(normalize_observations=True))


@pytest.mark.slow
@pytest.mark.parametrize(
  'options, words',
  [
    ({'make_environment': Bytes, 'make_agent': NORMALIZING}, '^--normalize_observations .* uint8'),
    ({'make_environment': NotANumber}, r'learner step 2 is not finite: .*loss is nan'),
    (  # The first of three, behind two unrolls without one.
      REPLAY | {'make_environment': NotANumber, 'updates_per_call': 5},
      r'learner step 1 is not finite: .*loss is nan',
    ),
    ({'num_devices': 99}, r'--num_devices=99, but this process sees \d+ device'),
    (
      REPLAY | {'rings': dataclasses.replace(REPLAY['rings'], slots=10**8)},
      r'^--replay_size makes a replay of \d+.\d GiB, .* --checkpoint_period=0.$',
    ),
  ],
)
def test_a_run_that_cannot_resume_is_rejected_in_one_sentence(
  tmp_path, connect, stop, options, words
):
  monitor = Monitor(str(tmp_path), num_steps=500, evaluators=[])
  node = make_node(tmp_path, connect(monitor), **options)
  with pytest.raises(lifecycle.NonRetryableError, match=words):
    node.run()


@pytest.mark.slow
def test_a_checkpoint_of_other_environments_is_rejected(tmp_path, connect, stop):
  run_to_the_end(tmp_path, connect, stop)
  stop.clear()
  node = make_node(tmp_path, connect(Monitor(str(tmp_path), 500, [])), num_envs=16)
  with pytest.raises(lifecycle.NonRetryableError, match='made by another config'):
    node.run()
