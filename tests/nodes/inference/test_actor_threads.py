"""Actors that are threads of the inference server's process."""

import collections
import functools
import threading
import traceback
import types

import jax
import numpy as np
import pytest

from agents.seeding import Seed
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from environments.base import Exhausted
from environments.catch import Catch
from nodes.actor import Actor
from nodes.inference.client import ServerAddress
from nodes.inference.layout import layout
from nodes.inference.serving import ActorThread
from nodes.inference.socket_server import SocketServer
from nodes.runtime import lifecycle, watchdog
from tests.nodes.counter import CounterAgent, CounterEnvironment
from tests.ports import unused_port
from tests.waiting import DEADLINE, wait_until

UNROLLS = 4  # Of each environment, that are compared.


def make_catch(num_envs, seed):
  return Catch(num_envs, seed, rows=6, columns=5)


def actor_threads(make_environment, num_actors=1, num_envs=2, env_groups=1):
  return [
    ActorThread(make_environment, f'actor/{i}', num_envs, env_groups, Seed(0, ('actor', i)))
    for i in range(num_actors)
  ]


@pytest.fixture
def start(make_server):
  """Starts a server with actors in its process; returns it and what takes its unrolls."""

  def make(threads, spec, agent, env_groups, inbox=None):
    params = agent.init(jax.random.key(0)).params
    return make_server(env_groups, agent, inbox=inbox, spec=spec, params=params, actors=threads)

  return make


class Agent(CounterAgent):
  """Acts as `CounterAgent`, with a number as its parameters."""

  def init(self, key):
    return types.SimpleNamespace(params=np.float32(0))


@pytest.fixture
def start_counting(start):
  """Starts a server whose actors have pairs of environments that count."""

  def make(make_environment, env_groups=1, num_actors=1):
    threads = actor_threads(make_environment, num_actors, 2 * env_groups, env_groups)
    spec = CounterEnvironment([1]).spec()
    return start(threads, spec, Agent(), layout(num_actors, 2 * env_groups, env_groups))

  return make


def rows_of(sink):
  """Returns the first unrolls of each environment, by its id."""
  found = {}
  for unroll in list(sink.unrolls):
    for i, environment in enumerate(unroll.environment_id.tolist()):
      found.setdefault(environment, []).append(jax.tree.map(lambda x, i=i: x[i], unroll))
  return found


def test_rows_are_those_of_actors_that_are_processes(start, stop):
  agent_config = VTraceConfig(unroll_length=7, mlp_sizes=(8,), core='lstm', core_size=4)
  spec = make_catch(1, 0).spec()
  agent = VTrace(agent_config, spec.observations, spec.actions)
  env_groups = layout(2, 4, 2)
  threads = actor_threads(make_catch, num_actors=2, num_envs=4, env_groups=2)

  def are_enough(sink):
    played = collections.Counter(unroll.environment_id[0] for unroll in list(sink.unrolls))
    return len(played) == 4 and min(played.values()) >= UNROLLS

  server, here = start(threads, spec, agent, env_groups)
  wait_until(lambda: are_enough(here), server.check)
  server.close()

  port = unused_port()
  server, there = start((), spec, agent, env_groups, SocketServer(port))
  address = ServerAddress(f'localhost:{port}')
  actors = [Actor(make_catch, address, None, *each[1:]) for each in threads]
  running = [threading.Thread(target=actor.run, daemon=True) for actor in actors]
  for thread in running:
    thread.start()
  wait_until(lambda: are_enough(there), server.check)
  stop.set()
  server.finish_training()
  for thread in running:
    thread.join(DEADLINE)
  # The same to the last digits, which depend on the size of the batches.
  for environment, unrolls in rows_of(there).items():
    jax.tree.map(
      functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6),
      rows_of(here)[environment][:UNROLLS],
      unrolls[:UNROLLS],
    )


def test_the_error_of_an_environment_is_that_of_the_server_with_its_own_traceback(start_counting):
  class Broken(CounterEnvironment):
    def step(self, action):
      if self._count.max() == 3:
        raise RuntimeError('the emulator has crashed')
      return super().step(action)

  server, _ = start_counting(lambda num_envs, seed: Broken([9] * num_envs), num_actors=2)
  with pytest.raises(RuntimeError, match='the emulator has crashed') as raised:
    wait_until(lambda: False, server.check)
  printed = traceback.format_exception(raised.value)
  assert 'in step' in printed[-2] and printed[-1] == 'RuntimeError: the emulator has crashed\n'


def test_an_environment_that_cannot_be_made_is_an_error_of_the_server(start_counting):
  def make(num_envs, seed):
    raise OSError('no such level')

  server, _ = start_counting(make)
  with pytest.raises(OSError, match='no such level'):
    wait_until(lambda: False, server.check)


def test_an_exhausted_environment_stops_the_program_and_fails_nothing(start_counting, monkeypatch):
  stopped = threading.Event()
  monkeypatch.setattr(lifecycle, 'program_stopper', lambda: stopped.set)

  class Ending(CounterEnvironment):
    def step(self, action):
      raise Exhausted

  server, _ = start_counting(lambda num_envs, seed: Ending([9] * num_envs))
  assert stopped.wait(DEADLINE)
  server.check()


@pytest.mark.parametrize('where', ['reset', 'step'])
def test_environments_that_hang_are_noticed_where_failures_are(start_counting, monkeypatch, where):
  resumed = threading.Event()

  class Hanging(CounterEnvironment):
    def hang(self, *arguments):
      resumed.wait(DEADLINE)
      return getattr(super(), where)(*arguments)

  setattr(Hanging, where, Hanging.hang)
  monkeypatch.setattr(watchdog, 'LIMIT_SECONDS', 0.0)
  server, _ = start_counting(lambda num_envs, seed: Hanging([9] * num_envs))
  with pytest.raises(TimeoutError, match='making or stepping the environments of actor/0 has'):
    wait_until(lambda: False, server.check)
  resumed.set()


def test_a_timestep_that_is_no_array_is_an_error_of_the_server(start_counting):
  class Listing(CounterEnvironment):
    def step(self, action):
      self.game_over = [False] * self.num_envs
      return super().step(action)

  server, _ = start_counting(lambda num_envs, seed: Listing([9] * num_envs))
  with pytest.raises(ValueError, match='the server cannot read a timestep'):
    wait_until(lambda: False, server.check)


def test_actors_end_with_training_or_the_server_and_close_their_environments(start_counting):
  closed = []

  class Closing(CounterEnvironment):
    def close(self):
      closed.append(threading.current_thread().name)

  make = lambda num_envs, seed: Closing([9] * num_envs)  # noqa: E731
  server, sink = start_counting(make, env_groups=2, num_actors=2)
  wait_until(lambda: len(sink.unrolls) > 8, server.check)
  measured = server.measure(1.0)
  assert measured['stepping_share'] > 0 and measured['waiting_share'] > 0
  server.finish_training()
  wait_until(lambda: len(closed) == 4, server.check)
  assert sorted(closed) == ['actor/0', 'actor/0', 'actor/1', 'actor/1']

  closed.clear()
  server, sink = start_counting(make, env_groups=2)
  wait_until(lambda: sink.unrolls, server.check)
  server.close()
  assert closed == ['actor/0'] * 2
  server.check()
