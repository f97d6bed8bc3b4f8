"""The replay loader, against real replay servers."""

import os
import queue
import threading
import types
from collections import Counter

import dm_env.specs
import jax.numpy as jnp
import numpy as np
import pytest
from acme import specs

from agents.agent import ActOutput, Agent
from nodes import replay
from nodes.learning.options import LoadingOptions
from nodes.replay_loader import ReplayLoader
from nodes.runtime import lifecycle
from nodes.unrolls import reader, tables, transitions
from nodes.unrolls.assembler import unroll_spec
from nodes.unrolls.packing import Columns
from nodes.unrolls.replay_client import ReplayClient
from nodes.unrolls.table_names import OFFLINE
from rundir import audit, recorded_unrolls
from tests.nodes.unrolls import stream
from tests.ports import unused_port
from tests.waiting import DEADLINE, end_of_writers, wait_until

SPEC = specs.EnvironmentSpec(
  observations=specs.Array((1,), np.float32),
  actions=dm_env.specs.BoundedArray((1,), np.float32, 0.0, 1.0),
  rewards=specs.Array((), np.float32),
  discounts=specs.BoundedArray((), np.float32, 0.0, 1.0),
)


class TransitionAgent(Agent):
  """Its unrolls are transitions of the stream's environment."""

  unroll_rows, unroll_period = 2, 1

  def init(self, key):
    return types.SimpleNamespace(params=jnp.float32(0))

  def initial_core_state(self, batch_size):
    return {}

  def exploration(self, num_environments):
    return np.zeros(num_environments, np.float32)

  def act(self, params, core_state, timestep, exploration, keys):
    return ActOutput(jnp.zeros_like(timestep.observation), {}, core_state)

  def update(self, state, unrolls, probabilities):
    raise NotImplementedError


AGENT = TransitionAgent()


class Environment:
  """Has specs only."""

  action_repeat = 1

  def spec(self):
    return SPEC

  def close(self):
    pass


class Servers:
  """Replay servers, each of which may lose all that it holds, and loaders in threads."""

  def __init__(self, tmp_path, monkeypatch, count):
    self.run_dir = tmp_path / 'recorded'
    stream.record(self.run_dir, 5, 4, 300, chunk_bytes=4000)
    stream.record(self.run_dir, 5, 4, 50, first_id=1 << 40)
    self.recorded = transitions.count([str(self.run_dir)])
    self._directory, self._count = tmp_path, count
    self._ports = [unused_port() for _ in range(count)]
    self._servers = [None] * count
    for k in range(count):
      self.restart(k)
    self._monkeypatch = monkeypatch
    self.errors = queue.SimpleQueue()
    self._stops = []

  @property
  def addresses(self):
    return [f'localhost:{port}' for port in self._ports]

  def restart(self, k):
    """Replaces a server by an empty one."""
    if self._servers[k]:
      self._servers[k].close()
    table = tables.uniform_table(-(-self.recorded // self._count), 1, name=OFFLINE)
    self._servers[k] = replay.ReplayServer(
      table, None, 'replay/0', str(self._directory / f'replay{k}'), 0.0, self._ports[k]
    )

  def close(self):
    for stop in self._stops:
      stop.set()
    for server in self._servers:
      server.close()

  def load(self, wanted=None):
    """Starts a loader; returns a function that ends it."""
    stop = threading.Event()
    self._stops.append(stop)
    self._monkeypatch.setattr(lifecycle, 'stop_event', lambda: stop)
    wanted = wanted or self.recorded
    options = LoadingOptions(
      'replay_loader/0', (str(self.run_dir),), self.recorded, wanted, str(self._directory)
    )
    node = ReplayLoader(
      lambda *_: AGENT, lambda num_envs, seed: Environment(), self.addresses, None, options
    )

    def run():
      try:
        node.run()
      except BaseException as error:
        self.errors.put(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def end():
      stop.set()
      thread.join(DEADLINE)
      assert not thread.is_alive()
      assert self.errors.empty(), self.errors.get()

    return end

  def check(self):
    assert self.errors.empty(), self.errors.get()

  def held(self):
    """Returns how many transitions each server holds; 0 if it does not answer."""
    return [(reader.occupancy(address, OFFLINE) or (0, 0))[0] for address in self.addresses]

  def inserted(self):
    infos = [ReplayClient(address).server_info()[OFFLINE] for address in self.addresses]
    return sum(info.rate_limiter_info.insert_stats.completed for info in infos)

  def contents(self):
    """Returns the two observations of each transition that a sampler finds, and how often it is held."""
    columns = Columns(unroll_spec(AGENT, SPEC))
    keys = {}
    for address, held in zip(self.addresses, self.held(), strict=True):
      batches = iter(reader.UnrollReader([address], columns, 64, max_in_flight=64, table=OFFLINE))
      of_server = {}
      while len(of_server) < held:
        batch = next(batches)
        assert set(np.ravel(batch.unrolls.policy_version)) == {0}
        observations = batch.unrolls.timestep.observation[..., 0]
        of_server |= zip(batch.keys.tolist(), map(tuple, observations.tolist()), strict=True)
      keys |= {(address, key): pair for key, pair in of_server.items()}
    return Counter(keys.values())

  def wanted(self):
    chunks = transitions.read([str(self.run_dir)], self.recorded, self.recorded)
    pairs = [map(tuple, rows['timestep/observation'][..., 0].tolist()) for rows in chunks]
    return Counter(pair for some in pairs for pair in some)


@pytest.fixture
def servers(tmp_path, monkeypatch):
  with end_of_writers():
    made = Servers(tmp_path, monkeypatch, count=2)
    yield made
    made.close()


def test_each_transition_is_loaded_once_also_by_a_second_incarnation(servers):
  end = servers.load()
  wait_until(lambda: sum(servers.held()) == servers.recorded, servers.check)
  end()
  assert servers.contents() == servers.wanted()
  held = servers.held()
  assert abs(held[0] - held[1]) <= 1
  end = servers.load()
  servers.restart(1)  # The loader has something to do, so it has looked at both.
  wait_until(lambda: servers.held() == held, servers.check)
  end()
  assert servers.contents() == servers.wanted()
  assert servers.inserted() == servers.recorded
  audited = audit.read(str(servers._directory), audit.LOADED)[:, 0].tolist()
  assert len(set(audited)) == len(audited) == servers.recorded + held[1]


@pytest.mark.slow
def test_a_loader_continues_where_another_was_killed(servers, monkeypatch):
  monkeypatch.setattr('nodes.replay_loader._BLOCK', 16)
  looks = []

  def killed_after_some(self, shards):
    looks.append(None)
    if len(looks) == 12:
      raise lifecycle.Stopped
    return look(self, shards)

  look = ReplayLoader._poll
  monkeypatch.setattr(ReplayLoader, '_poll', killed_after_some)
  end = servers.load()
  wait_until(lambda: len(looks) == 12, servers.check)
  end()
  before = sum(servers.held())
  assert 100 < before < 200
  monkeypatch.setattr(ReplayLoader, '_poll', look)
  end = servers.load()
  wait_until(lambda: sum(servers.held()) == servers.recorded, servers.check)
  end()
  assert servers.contents() == servers.wanted()


@pytest.mark.slow
def test_a_server_that_lost_everything_is_refilled_without_gaps(servers):
  end = servers.load()
  wait_until(lambda: sum(servers.held()) == servers.recorded, servers.check)
  servers.restart(0)
  wait_until(lambda: sum(servers.held()) == servers.recorded, servers.check)
  end()
  assert servers.contents() == servers.wanted()


def test_of_many_transitions_it_loads_as_many_as_wanted(servers):
  end = servers.load(wanted=101)
  wait_until(lambda: servers.held() == [51, 50], servers.check)
  end()
  found = servers.contents()
  assert found <= servers.wanted() and found.total() == 101
  # Of the whole recording, not of its beginning: rows 0 to 298 of environment 0.
  assert {int(row) // 100 for row, _ in found if row < 1000} == {0, 1, 2}


def test_data_that_were_removed_after_the_launch_end_it_with_a_sentence(servers):
  os.remove(recorded_unrolls.chunks(str(servers.run_dir))[1])
  servers.load()
  wait_until(lambda: not servers.errors.empty())
  error = servers.errors.get()
  assert isinstance(error, lifecycle.NonRetryableError) and 'fewer recorded transitions' in str(
    error
  )
