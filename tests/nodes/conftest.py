"""Servers that tests of nodes talk to, and the stop of the program that they run in."""

import threading

import pytest

import courier
from agents.seeding import Seed
from nodes.inference import codec
from nodes.inference.client import ServerAddress
from nodes.inference.socket_server import SocketServer
from nodes.learning.options import LearningOptions, TrainingOptions
from nodes.runtime.options import RunOptions
from nodes.unrolls.table_names import UNROLLS, BatchPart
from tests.ports import unused_port
from tests.waiting import DEADLINE


@pytest.fixture
def connect():
  """Serves an object as nodes do; returns a client of it, whose calls have a deadline."""
  servers = []

  def serve(instance):
    server = courier.Server(data_only=True)
    for name in dir(instance):
      if not name.startswith('_') and callable(getattr(instance, name)):
        server.Bind(name, getattr(instance, name))
    server.Start()
    servers.append(server)
    return courier.Client(server.address, call_timeout=DEADLINE, data_only=True)

  yield serve
  for server in servers:
    server.Stop()


@pytest.fixture
def stop(monkeypatch):
  """The event that nodes take for the program's stop."""
  event = threading.Event()
  monkeypatch.setattr('nodes.runtime.lifecycle.stop_event', lambda: event)
  yield event
  event.set()


@pytest.fixture
def shared_memory():
  """Whether the servers of `answer` let clients share memory; modules may override it."""
  return True


@pytest.fixture
def answer(shared_memory):
  """Answers requests by `handler(*request)`, which returns what is to be packed, () for no answer.

  Returns the server as actors know it.
  """
  closed = threading.Event()
  inboxes = []

  def run(inbox, handler):
    while not closed.is_set():
      for connection, message in inbox.poll(None):
        reply = handler(*codec.unpack(message, connection.memory))
        if reply:
          inbox.send(connection, codec.pack(*reply))
    inbox.close()

  def start(handler, port=None):
    port = port or unused_port()
    inbox = SocketServer(port, shared_memory=shared_memory)
    inbox.accept_messages_of(1 << 25)
    inboxes.append(inbox)
    threading.Thread(target=run, args=(inbox, handler), daemon=True).start()
    return ServerAddress(f'localhost:{port}')

  yield start
  closed.set()
  for inbox in inboxes:
    inbox.wake()


@pytest.fixture
def broken_learner(tmp_path):
  """Returns arguments for a node that learns; its environment fails when the node runs."""

  def make_environment(num_envs, seed):
    raise OSError('the environment is broken')

  return {
    'make_agent': None,
    'make_environment': make_environment,
    'replay_addresses': [],
    'monitor': None,
    'training': TrainingOptions(
      name='learner/0',
      run=RunOptions(num_steps=1, run_dir=str(tmp_path), checkpoint_period=0.0),
      learning=LearningOptions(),
      batch_parts=(BatchPart(UNROLLS, 1),),
      seed=Seed(0),
    ),
  }


@pytest.fixture
def serve(tmp_path):
  """Starts replay servers; returns their addresses."""
  from nodes import replay  # Seconds, which most tests do not need to wait.

  servers = []

  def start(tables, directory='replay'):
    port = unused_port()
    servers.append(
      replay.ReplayServer(tables, None, 'replay/0', str(tmp_path / directory), 0.0, port)
    )
    return f'localhost:{port}'

  yield start
  for server in servers:
    server.close()


@pytest.fixture
def queue_address(serve):
  """The address of a replay server whose queue takes 4 items."""
  from nodes.unrolls import tables

  return serve(tables.queue_table(4))


@pytest.fixture
def make_server():
  """Starts inference servers; returns one and what takes its unrolls."""
  import jax  # Seconds, which most tests do not need to wait.
  import numpy as np
  from acme.utils.counting import Counter

  from nodes.inference.server import InferenceServer
  from tests.nodes.counter import CounterAgent, CounterEnvironment
  from tests.nodes.inference_clients import Sink

  servers = []

  def make(
    env_groups,
    agent=None,
    batch_size=8,
    timeout=0.002,
    sink=None,
    num_devices=1,
    environment=CounterEnvironment,
    threads=0,
    inbox=None,
    spec=None,
    params=None,
    seed=0,
    actors=(),
  ):
    sink = sink or Sink()
    spec = spec or environment([1]).spec()
    agent = agent or CounterAgent()
    server = InferenceServer(
      agent,
      env_groups,
      jax.local_devices()[:1] * num_devices,
      spec,
      writer=sink,
      counter=Counter(),
      action_repeat=1,
      batch_size=batch_size,
      timeout=timeout,
      seed=Seed(seed),
      inbox=inbox,
      threads=threads,
      actors=actors,
    )
    server.set_params(0, np.float32(0) if params is None else params)
    server.compile()
    server.start()
    servers.append(server)
    return server, sink

  yield make
  for server in servers:
    server.close()
