"""Clients of an inference server, and a writer that keeps its unrolls."""

import jax
import numpy as np

from nodes.inference import codec
from nodes.inference.client import packed
from tests.nodes.counter import CounterEnvironment
from tests.waiting import DEADLINE


class Client:
  """Acts for one environment group of a server."""

  def __init__(self, server, environment, actor_id='actor/0', incarnation=1, group=0):
    self.environment = environment
    self.connection = server.connect()
    self.connection.set_timeout(DEADLINE)
    self.identity = '', actor_id, incarnation, group
    self.sequence = -1
    self.timestep = None

  def step(self):
    """Asks once; returns the actions."""
    self.send_step()
    self.action = self.receive()
    return self.action

  def send_step(self):
    if self.timestep is None:
      self.timestep = self.environment.reset()
    else:
      self.timestep = self.environment.step(self.action)
    self.sequence += 1
    self.send(self.sequence, self.timestep)

  def ask(self, sequence, timestep):
    self.send(sequence, timestep)
    return self.receive()

  def send(self, sequence, timestep):
    self.connection.send(packed(self.connection, (*self.identity, sequence, *timestep)))

  def receive(self):
    while (answer := self.connection.receive()) is None:
      pass
    action, *refusal = codec.unpack(answer)
    if refusal:
      raise ValueError(refusal[0])
    return action


class Sink:
  """A writer that keeps unrolls, copied, and hands the arrays back, if it is `free`."""

  def __init__(self):
    self.unrolls = []
    self.free = True
    self.kept = []

  def compile(self, sizes):
    pass

  def start(self):
    pass

  def check(self):
    pass

  def close(self):
    pass

  def put(self, unroll, release):
    self.unrolls.append(jax.tree.map(np.copy, unroll))
    if self.free:
      release()
    else:
      self.kept.append(release)


def fill_replay(server, sink):
  """Returns a client whose request waits for replay."""
  sink.free = False
  client = Client(server, CounterEnvironment([100, 100]))
  for _ in range(9):  # Two unrolls: one is with the sink, and the other has nowhere to go.
    client.step()
  client.send_step()
  return client


def step_together(clients):
  for client in clients:
    client.send_step()
  for client in clients:
    client.action = client.receive()
