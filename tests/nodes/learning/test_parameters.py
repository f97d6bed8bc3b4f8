"""Parameters on their way from a learner to actors, and what the actors say they have done."""

import threading
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from acme.utils.counting import Counter

from nodes.learner import LearnerNode
from nodes.learning.parameter_client import ParameterClient
from nodes.learning.parameter_server import ParameterServer
from nodes.learning.parameter_service import ActingAndServing
from nodes.runtime import rpc
from nodes.runtime.counters import ActingCounters, ActingTotals
from nodes.runtime.gate import ReadyGate
from tests.waiting import DEADLINE

NEVER = lambda: False  # noqa: E731


def make_server(counter=None):
  counter = counter or Counter()
  return ParameterServer(ActingCounters(counter, 4), counter, ReadyGate())


def make_client(learner, taken):
  take = lambda version, params: taken.append((version, float(params['w'])))  # noqa: E731
  return ParameterClient(learner, 'actor/0', 1, 0.001, ActingTotals, take, {'w': np.float32(0)})


class Restarting:
  """A learner whose present life answers."""

  def __init__(self, life):
    self.life = life

  def fetch(self, *args):
    return self.life.fetch(*args)


def publish(server, version, value):
  server.set_params(version, {'w': jnp.float32(value)})


def test_an_actor_gets_each_version_once_and_those_of_another_incarnation_of_the_learner(connect):
  taken = []
  first = make_server()
  learner = Restarting(first)
  client = make_client(connect(learner), taken)
  publish(first, 5, 0.5)
  assert client.fetch(NEVER) and client.fetch(NEVER)
  publish(first, 6, 0.6)
  assert client.fetch(NEVER)
  assert taken == [(5, 0.5), (6, np.float32(0.6))]
  # Another incarnation continues from a checkpoint: its versions are older, or the same and yet others.
  for version in (6, 3):
    other = make_server()
    publish(other, version, version)
    learner.life = other
    assert client.fetch(NEVER) and client.fetch(NEVER)
  assert taken[2:] == [(6, 6.0), (3, 3.0)]
  other.finish_training()
  assert not client.fetch(NEVER)


class Params(NamedTuple):
  """Of an agent such as MuZero."""

  network: Any
  temperature: Any


def params_of(width):
  network = {'layers': [{'w': np.ones((2, width), np.float32)}, ()], 'norm': {}}
  return Params(network, np.float32(0.5))


def fetch_as(template, connect):
  """Returns what a node with parameters like `template` takes of a learner with `params_of(3)`."""
  taken, server = [], make_server()
  server.set_params(7, jax.tree.map(jnp.asarray, params_of(3)))
  client = ParameterClient(
    connect(server), 'actor/0', 1, 0.0, ActingTotals, lambda *args: taken.append(args), template
  )
  client.fetch(NEVER)
  return taken


def test_parameters_arrive_in_the_structure_that_they_have_in_the_agent(connect):
  [(version, params)] = fetch_as(params_of(3), connect)
  assert version == 7 and type(params) is Params
  assert jax.tree.structure(params) == jax.tree.structure(params_of(3))
  jax.tree.map(np.testing.assert_array_equal, params, params_of(3))


@pytest.mark.parametrize(
  'template, text',
  [
    (
      params_of(4),
      r'it has float32\[2, 3\] for network/layers/0/w, but this agent expects float32\[2',
    ),
    (Params({}, np.float32(0)), 'for network/layers/0/w, but this agent expects nothing'),
    ({'w': np.float32(0)}, 'but this agent expects nothing'),
  ],
)
def test_parameters_of_another_network_are_refused_by_their_names(connect, template, text):
  with pytest.raises(ValueError, match=f'{text}.*both nodes need the same agent and options'):
    fetch_as(template, connect)


def test_variables_of_one_moment_and_no_others(connect):
  counter = Counter()
  counter.increment(learner_steps=7, environment_frames=40)
  server = make_server(counter)
  publish(server, 7, 0.5)
  counter.increment(learner_steps=1)
  client = connect(server)
  version, params, counts = client.get_variables(['policy_version', 'params', 'counts'])
  assert (version, float(params['w']), counts['environment_frames']) == (7, 0.5, 40)
  assert counts['learner_steps'] == 7
  with pytest.raises(Exception, match=r"no variable 'bias'.*'policy_version'"):
    client.get_variables(['params', 'bias'])


def test_what_actors_did_is_counted_once(connect):
  counter = Counter()
  counter.increment(actor_steps=1000, environment_frames=4000)  # From a checkpoint.
  server = make_server(counter)
  publish(server, 0, 0)

  def tell(actor, incarnation, steps, episodes=0, returns=0.0):
    server.fetch(
      None, '', actor, incarnation, ActingTotals(steps, episodes, returns, 10 * episodes)
    )
    return counter.get_counts()['actor_steps'] - 1000

  assert tell('actor/0', 10, 0) == 0
  assert tell('actor/0', 10, 30, 2, 1.0) == 30
  assert tell('actor/0', 10, 30, 2, 1.0) == 30, 'the same word twice'
  assert tell('actor/0', 10, 20, 1, 1.0) == 30, 'a late word'
  # This one is older than this incarnation of the learner; what it did before is not counted again.
  assert tell('actor/1', 11, 500, 9, 9.0) == 30
  assert tell('actor/1', 11, 510, 10, 12.0) == 40
  assert server.measure(1.0)['restarts'] == 0
  # Another incarnation, whose number says nothing about its age.
  assert tell('actor/0', 3, 0) == 40
  assert tell('actor/0', 3, 5) == 45
  assert tell('actor/0', 10, 31) == 46, 'the last word of the one before comes late'
  assert tell('actor/0', 10, 31) == 46
  assert tell('actor/0', 3, 6) == 47
  assert counter.get_counts()['environment_frames'] == 4000 + 4 * 47
  measured = server.measure(2.0)
  assert (measured['restarts'], measured['actor_steps']) == (1, 1047)
  assert measured['actor_steps_per_second'] == 7 / 2


def test_incarnations_that_are_long_over_are_forgotten():
  server = make_server()
  publish(server, 0, 0)

  def tell(incarnation, steps):
    server.fetch(None, '', 'actor/0', incarnation, ActingTotals(steps))
    return server.measure(1.0)['actor_steps']

  for incarnation in range(100):
    tell(incarnation, 0)
    assert tell(incarnation, 1) == incarnation + 1
  for incarnation in range(84, 100):
    assert tell(incarnation, 2) == incarnation + 1 + 100 - 84
  assert tell(83, 2) == 116, 'only the last 16 are known; of others, this is the first word'
  assert server.measure(1.0)['restarts'] == 100


def test_an_actor_of_another_run_retries_and_counts_nothing():
  server = make_server()
  publish(server, 0, 0)
  server.fetch(None, '', 'actor/0', 1, ActingTotals())
  with pytest.raises(RuntimeError, match='retry'):
    server.fetch(None, 'another run', 'actor/0', 1, ActingTotals(50))
  assert server.measure(1.0)['actor_steps'] == 0


def test_rates_and_means_are_of_the_time_since_the_last_measurement():
  progress = ActingCounters(Counter(), 4)
  progress.add(ActingTotals(30, 2, 1.0, 20))
  assert progress.measure(2.0)['episode_return'] == 0.5
  progress.add(ActingTotals(10, 1, -3.0, 6))
  measured = progress.measure(2.0)
  assert measured['environment_frames'] == 160
  assert (measured['actor_steps_per_second'], measured['environment_frames_per_second']) == (5, 20)
  assert (measured['episodes'], measured['episode_return'], measured['episode_length']) == (
    1,
    -3,
    6,
  )
  assert np.isnan(progress.measure(2.0)['episode_return'])


class Acting:
  """Keeps what it is told."""

  def __init__(self):
    self.told = []
    self.start = self.check = self.measure = lambda *args: self.told.append('other')
    self.stop_writing = lambda: self.told.append('stop writing')

  def set_params(self, version, params):
    self.told.append(version)

  def compile(self):
    self.told.append('compile')

  def finish_training(self):
    self.told.append('finish')


def test_a_learner_that_acts_serves_its_parameters_from_its_compilation_to_the_end(connect):
  acting, taken, gate, counter = Acting(), [], ReadyGate(), Counter()
  server = ParameterServer(ActingCounters(counter, 4), counter, gate)
  service, client = ActingAndServing(acting, server), make_client(connect(server), taken)
  service.set_params(3, {'w': jnp.float32(0.5)})
  service.compile()
  gate.wait()
  service.set_params(4, {'w': jnp.float32(0.25)})
  assert client.fetch(NEVER) and taken == [(4, 0.25)]
  service.finish_training()
  assert not client.fetch(NEVER)
  service.stop_writing()
  assert acting.told == [3, 'compile', 4, 'finish', 'stop writing']


def test_the_more_nodes_fetch_and_the_larger_the_parameters_the_rarer_are_their_fetches(connect):
  def pause(nodes, values, versions=100):
    server, params = make_server(), {'w': jnp.zeros(values)}
    for version in range(versions):
      server.set_params(version, params)
    for i in range(nodes):
      *_, asked = server.fetch(None, '', f'actor/{i}', 1, ActingTotals())
    return asked

  assert pause(1, 1) <= 0.001
  assert pause(2000, 1) == pytest.approx(2000 * pause(1, 1))
  assert pause(10, 1_700_000) == pytest.approx(10 * pause(1, 1_700_000))
  assert pause(1, 1_700_000) > pause(1, 1) == pause(1, 1_700_000, versions=1)
  server, taken = make_server(), []
  server.set_params(1, {'w': jnp.float32(0.5)})
  for i in range(20_000):
    server.fetch(None, '', f'relabeller/{i}', 1, ActingTotals())
  client = make_client(connect(server), taken)
  assert client.due and client.fetch(NEVER)
  assert taken and not client.due, 'its own period is a millisecond'


class Away:
  """A learner that is away for the first questions, and finishes when asked often enough."""

  def __init__(self):
    self.asked = 0

  def fetch(self, held, run, actor_id, incarnation, totals):
    self.asked += 1
    if self.asked in (2, 3):
      raise rpc.retry_later_error()
    return self.asked >= 6, (1, self.asked), {'w': np.float32(self.asked)}, 0.0


def test_calls_to_a_learner_that_is_down_are_retried_until_training_has_finished(connect):
  taken, ended, learner = [], threading.Event(), Away()
  client = make_client(connect(learner), taken)
  client.start(lambda: None, ended.set)
  assert ended.wait(DEADLINE)
  client.close()
  assert [version for version, _ in taken] == [1, 4, 5, 6]


def test_a_client_that_cannot_continue_says_so(connect):
  def check():
    raise OSError('the disk is full')

  ended = threading.Event()
  client = make_client(connect(Away()), [])
  client.start(check, ended.set)
  assert ended.wait(DEADLINE)
  with pytest.raises(OSError, match='the disk is full'):
    client.close()


def test_a_waiting_client_can_be_closed(connect):
  asked, closed = threading.Event(), threading.Event()

  class Silent:
    def fetch(self, *args):
      asked.set()
      assert closed.wait(DEADLINE)

  ended = threading.Event()
  client = make_client(connect(Silent()), [])
  client.start(lambda: None, ended.set)
  assert asked.wait(DEADLINE)
  client.close()
  assert ended.is_set(), 'it still waits for the answer'
  closed.set()


def test_a_failing_learner_makes_no_actor_exit(broken_learner):
  node = LearnerNode(**broken_learner)
  with pytest.raises(OSError, match='the environment is broken'):
    node.run()
  for ask in (
    lambda: node.fetch(None, '', 'actor/0', 1, ActingTotals()),
    lambda: node.get_variables(['params']),
  ):
    with pytest.raises(RuntimeError, match='retry'):
      ask()
