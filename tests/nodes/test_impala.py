"""Nodes that act with fetched parameters, against a real queue and parameter server."""

import functools
import io
import queue
import threading
import time
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from acme.utils.counting import Counter
from PIL import Image

from agents.seeding import Seed
from agents.types import FIRST, LAST
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from environments.catch import Catch
from nodes.actor import Actor
from nodes.evaluation.fetched import FetchingPlayer
from nodes.impala_actor import ImpalaActor
from nodes.inference.client import RemotePolicy, ServerAddress
from nodes.inference.device import DeviceInference
from nodes.inference.layout import layout
from nodes.inference.options import InferenceOptions
from nodes.inference.serving import ActorThread, Serving, one_group
from nodes.inference_node import InferenceNode
from nodes.learning.parameter_server import ParameterServer
from nodes.learning.prefetcher import DevicePrefetcher
from nodes.runtime.counters import ActingCounters
from nodes.runtime.gate import ReadyGate
from nodes.unrolls import tables
from nodes.unrolls.assembler import unroll_spec
from nodes.unrolls.packing import Columns
from nodes.unrolls.reader import UnrollReader
from nodes.unrolls.writer import UnrollWriter
from tests.nodes.counter import CounterAgent, CounterEnvironment
from tests.nodes.replay_size import replay_size
from tests.nodes.test_actor import Monitor, evaluation, judge
from tests.ports import unused_port
from tests.waiting import DEADLINE, end_of_writers, wait_until

EVAL_ENVS = 2
SMALL = VTraceConfig(unroll_length=7, mlp_sizes=(16,), core='lstm', core_size=8, frame_stack=3)


class Agent(CounterAgent):
  """Its parameter is a number, which it records and whose whole part is its action."""

  def init(self, key):
    return types.SimpleNamespace(params=jnp.float32(0))

  def act(self, params, core_state, timestep, exploration, keys):
    output = super().act(params, core_state, timestep, exploration, keys)
    return output._replace(action=jnp.full_like(output.action, params))


def make_catch(num_envs, seed):
  return Catch(num_envs, seed, rows=6, columns=5)


def make_vtrace(observations, actions):
  return VTrace(SMALL, observations, actions)


class Learner(ParameterServer):
  """Knows how often it was asked."""

  asked = 0
  variables_asked = 0

  def fetch(self, *args):
    self.asked += 1
    return super().fetch(*args)

  def get_variables(self, names):
    self.variables_asked += 1
    return super().get_variables(names)


class Acting:
  """The second of two actors, which acts itself, in a thread; and its learner's side of things."""

  def __init__(self, connect, serve, make_agent, make_environment, queue_size=8):
    self.make_environment = make_environment
    self.counter = Counter()
    self.counter.increment(actor_steps=0)
    self.learner = Learner(ActingCounters(self.counter, 1), self.counter, ReadyGate())
    spec = make_environment(1, 0).spec()
    agent = make_agent(spec.observations, spec.actions)
    self._address = serve(tables.queue_table(queue_size))
    columns = Columns(unroll_spec(agent, spec))
    self._reader = UnrollReader([self._address], columns, 2, max_in_flight=1)
    self._unrolls = None
    self.error = None
    self._actor = self._make_actor(connect, make_agent, layout(2, 2, 1)[1])
    self._thread = self._thread_of(self._actor)

  def _make_actor(self, connect, make_agent, env_group):
    return ImpalaActor(
      make_agent,
      self.make_environment,
      one_group(env_group, Seed(3), num_environments=4),
      connect(self.learner),
      [self._address],
      None,
      update_period=0.01,
    )

  def _thread_of(self, node):
    def run():
      try:
        node.run()
      except BaseException as error:
        self.error = error

    return threading.Thread(target=run, daemon=True)

  def start(self, version, params):
    self.learner.set_params(version, params)
    self._thread.start()

  def actor_steps(self):
    return self.counter.get_counts()['actor_steps']

  def queued(self):
    return replay_size(self._address)

  def read(self):
    """Returns the next unroll of each of the two environments."""
    if self._unrolls is None:  # Only now: a prefetcher takes from the queue ahead.
      self._unrolls = DevicePrefetcher(self._reader, lambda batch: batch.unrolls)
    batch = self._unrolls.next(self._check)
    np.testing.assert_array_equal(np.sort(batch.environment_id), [2, 3])
    return jax.tree.map(lambda x: x[np.argsort(batch.environment_id)], batch)

  def _check(self):
    assert self._thread.is_alive(), self.error

  def wait_until(self, condition):
    wait_until(condition, self._check, DEADLINE)

  def finish(self):
    self.learner.finish_training()
    self._thread.join(DEADLINE)
    assert not self._thread.is_alive() and self.error is None

  def stop(self):
    pass


class Asking(Acting):
  """The second of two actors, which asks an inference node, in threads."""

  def _make_actor(self, connect, make_agent, env_group):
    self._serving = self._thread_of(self._make_node(connect, make_agent, env_group))
    return Actor(
      self.make_environment, self.inference, None, env_group.actor_id, 2, 1, seed=Seed(5)
    )

  def _make_node(self, connect, make_agent, env_group, actors=()):
    port = unused_port()
    self.inference, self.ends = ServerAddress(f'localhost:{port}'), queue.SimpleQueue()
    options = InferenceOptions(inference_batch_size=2, inference_timeout_ms=1.0, one_core=False)
    env_groups = [env_group, layout(2, 2, 1, EVAL_ENVS)[-1]]
    return InferenceNode(
      make_agent,
      self.make_environment,
      Serving(env_groups, options, Seed(3), num_environments=4, actors=actors),
      connect(self.learner),
      [self._address],
      connect(self),
      port=port,
      name='inference/0',
      update_period=0.01,
    )

  # What the monitor is told.
  def alive(self, node):
    return False

  def report(self, node, values):
    assert node == 'inference/0' and not {'actor_steps', 'learner_steps'} & values.keys()

  def report_training_finished(self, node, values):
    assert (node, values) == ('inference/0', {})
    self.ends.put(node)

  def start(self, version, params):
    super().start(version, params)
    self._serving.start()

  def finish(self):
    super().finish()
    self.ends.get(timeout=DEADLINE)

  def serving_has_ended(self):
    self._serving.join(DEADLINE)
    return not self._serving.is_alive()

  def stop(self):
    assert self.serving_has_ended() and self.error is None


class Hosting(Asking):
  """The second of two actors, which is a thread of its inference node."""

  def _make_actor(self, connect, make_agent, env_group):
    actor = ActorThread(self.make_environment, env_group.actor_id, 2, 1, Seed(5))
    return self._make_node(connect, make_agent, env_group, [actor])

  def start(self, version, params):
    Acting.start(self, version, params)

  def finish(self):
    self.learner.finish_training()
    self.ends.get(timeout=DEADLINE)  # It serves the evaluator until the program stops.
    assert self.error is None

  def serving_has_ended(self):
    self._thread.join(DEADLINE)
    return not self._thread.is_alive()


@pytest.fixture
def start_acting(connect, serve, stop):
  """Starts actors of a class, which are sent home at the end of the test whatever came of it."""
  actors = []

  def start(kind, *args):
    actors.append(kind(connect, serve, *args))
    return actors[-1]

  with end_of_writers():
    yield start
    for actor in actors:
      actor.learner.finish_training()
    stop.set()
    for actor in actors:
      actor.stop()


@pytest.fixture(params=[Acting, Asking, Hosting])
def acting(start_acting, request):
  return functools.partial(start_acting, request.param)


def test_rows_carry_the_state_before_them_and_the_version_that_acted_in_them(acting):
  actor = acting(lambda *specs: Agent(), lambda n, seed: CounterEnvironment([3, 11][:n]))
  actor.start(1, np.float32(1))
  seen, checked = set(), 0
  for version in range(2, 7):
    actor.learner.set_params(version, np.float32(version))
    end = time.monotonic() + DEADLINE
    unroll = None
    while unroll is None or unroll.policy_version[0, -1] != version:  # Earlier ones are queued.
      assert time.monotonic() < end
      unroll = actor.read()
      np.testing.assert_array_equal(unroll.extras['params'], unroll.policy_version)
      np.testing.assert_array_equal(unroll.extras['count'], unroll.timestep.observation[..., 0])
      first = unroll.timestep.step_type[:, 0] == FIRST
      counter = unroll.timestep.observation[:, 0, 0]
      np.testing.assert_array_equal(unroll.core_state['count'][~first], counter[~first])
      np.testing.assert_array_equal(unroll.extras['exploration'][:, 0], [2, 3])
      checked += np.count_nonzero(~first)
      seen |= set(unroll.policy_version.ravel().tolist())
  assert checked and seen >= set(range(2, 7))
  actor.finish()


@pytest.mark.slow
def test_replaying_an_unroll_reproduces_what_acted_in_every_row(acting):
  actor = acting(make_vtrace, make_catch)
  spec = make_catch(1, 0).spec()
  agent = make_vtrace(spec.observations, spec.actions)
  params = jax.jit(agent.init)(jax.random.key(3)).params
  actor.start(0, params)
  replayed, step_types = jax.jit(agent.network.unroll), set()
  for _ in range(8):
    unroll = actor.read()
    step_types |= set(unroll.timestep.step_type.ravel().tolist())
    timestep, action = jax.tree.map(
      lambda x: np.swapaxes(x, 0, 1), (unroll.timestep, unroll.action)
    )
    output, _ = replayed(params, unroll.core_state, timestep, action)
    np.testing.assert_allclose(
      np.swapaxes(output.logits, 0, 1), unroll.extras['behaviour_logits'], atol=1e-5, rtol=1e-5
    )
  assert {int(FIRST), int(LAST)} < step_types
  assert any(np.any(leaf) for leaf in jax.tree.leaves(unroll.core_state))
  actor.finish()


def test_a_full_queue_holds_the_actor_back_and_nothing_is_dropped(acting):
  actor = acting(lambda *specs: Agent(), lambda n, seed: CounterEnvironment([10**6] * n), 4)
  actor.start(0, np.float32(0))

  steps = actor.actor_steps
  # Of each of the two environments: two unrolls in the queue, one with the writer, and one that no
  # arrays are left to go on from.
  actor.wait_until(lambda: steps() == 2 * (4 * 4 + 1))
  assert actor.queued() == 4
  asked = actor.learner.asked
  actor.wait_until(lambda: actor.learner.asked > asked + 20)
  assert steps() == 2 * (4 * 4 + 1)
  for k in range(30):
    rows = actor.read().timestep.observation[..., 0]
    np.testing.assert_array_equal(rows, [range(4 * k, 4 * k + 5)] * 2)
  actor.wait_until(lambda: steps() > 2 * 4 * 30)
  actor.finish()


def test_an_actor_that_starts_after_the_end_exits(acting):
  actor = acting(lambda *specs: Agent(), lambda n, seed: CounterEnvironment([3, 5][:n]))
  actor.learner.finish_training()
  actor.start(0, np.float32(0))
  actor.finish()


def test_an_evaluation_after_the_end_gets_the_final_parameters(start_acting):
  asking = start_acting(Asking, lambda *specs: Agent(), lambda n, seed: CounterEnvironment([3] * n))
  asking.start(0, np.float32(0))
  asking.read()
  asking.learner.set_params(1, np.float32(2))
  asking.finish()
  policy = RemotePolicy(asking.inference, 'evaluator/0', 1, 0, lambda: False)
  policy.send(asking.make_environment(EVAL_ENVS, 0).reset())
  np.testing.assert_array_equal(policy.receive(), [2, 2])
  policy.close()


def _learner():
  """Returns a learner of Catch after 77 environment frames, with parameters of version 9."""
  counter = Counter()
  counter.increment(environment_frames=77)
  learner = Learner(ActingCounters(counter, 1), counter, ReadyGate())
  spec = make_catch(1, 0).spec()
  agent = make_vtrace(spec.observations, spec.actions)
  learner.set_params(9, jax.jit(agent.init)(jax.random.key(0)).params)
  return learner


def test_the_evaluator_plays_with_one_version_and_says_which(connect):
  learner = _learner()
  monitor = Monitor()
  arguments = make_vtrace, make_catch, connect(learner)
  judge(arguments, connect(monitor), evaluation(), FetchingPlayer)
  assert len(monitor.evaluations) == len(monitor.final) == 1
  for values in monitor.evaluations + monitor.final:
    assert (values['evaluator_episodes'], values['evaluated_frames']) == (12, 77)
    won = 12 * (1 + values['evaluator_return']) / 2  # An episode returns 1 or -1.
    assert round(won, 3) in range(13)


@pytest.mark.slow
def test_an_evaluator_fails_with_its_inference_and_does_not_wait_for_it(connect, monkeypatch):
  def serve(device, batch):
    raise MemoryError('out of memory')

  learner = _learner()
  monkeypatch.setattr(DeviceInference, 'serve', serve)
  arguments = make_vtrace, make_catch, connect(learner)
  with pytest.raises(MemoryError, match='out of memory'):
    judge(arguments, connect(Monitor()), evaluation(), FetchingPlayer)


def test_the_evaluator_records_with_the_newest_parameters(connect):
  learner = _learner()
  monitor = Monitor(last=2)
  options = evaluation(eval_episodes=4, video_period=1e9, video_frames=100)
  arguments = make_vtrace, make_catch, connect(learner)
  judge(arguments, connect(monitor), options, FetchingPlayer)
  assert learner.variables_asked == 5  # Before the first evaluation; two evaluations, two videos.
  assert len(monitor.videos) == 2
  for _, gif in monitor.videos:
    with Image.open(io.BytesIO(gif)) as video:
      assert video.n_frames == 6  # An episode of 6 rows.


def test_a_server_that_fails_after_the_end_of_training_is_noticed(start_acting, monkeypatch):
  asking = start_acting(Asking, lambda *specs: Agent(), lambda n, seed: CounterEnvironment([3] * n))
  asking.start(0, np.float32(0))
  asking.finish()

  def check(writer):
    raise OSError('too many open files')

  monkeypatch.setattr(UnrollWriter, 'check', check)
  assert asking.serving_has_ended() and isinstance(asking.error, OSError)
  asking.error = None
