"""Measures what a request for actions and an inference batch cost, before a program starts."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from acme import specs

from agents import shapes
from agents.agent import Agent
from agents.seeding import Seed
from agents.types import Timestep
from nodes.inference import codec
from nodes.inference.client import RemotePolicy
from nodes.inference.device import DeviceInference
from nodes.inference.socket_server import SocketServer
from nodes.runtime import timing


class _Input(NamedTuple):
  """An `InferenceInput`."""

  timestep: Timestep
  rows: int
  first_slot: int
  needs_reset: bool = False


def inference(
  agent: Agent,
  spec: specs.EnvironmentSpec,
  num_requests: int,
  num_envs: int,
  timestep: Timestep,
) -> timing.Cost:
  """Returns what one batch costs on the first device, requests merged and answers distributed.

  Its parameters are zeros, which need no initialisation.

  Args:
    agent: the algorithm.
    spec: of one environment.
    num_requests: in the batch.
    num_envs: N, environments of each request.
    timestep: of a request; fields are `[N, ...]`.
  """
  rows = num_requests * num_envs
  device = jax.local_devices()[0]
  ids = np.arange(rows)
  served = DeviceInference(agent, device, agent.exploration(rows), ids, spec, [rows], Seed(0))
  served.set_params(0, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes.params(agent)))
  served.compile()
  requests = [_Input(timestep, num_envs, i * num_envs) for i in range(num_requests)]
  return timing.cost(lambda _: served.serve(requests))


def request(timestep: Timestep, action: np.ndarray) -> timing.Cost:
  """Returns what a request and its reply cost, client and server together.

  Args:
    timestep: of the request; fields are `[N, ...]`.
    action: of the reply, `[N, ...]`.
  """
  with _replying(action) as server:
    policy = RemotePolicy(server, 'actor/0', 1, 0, lambda: False)

    def ask(_: Any) -> None:
      policy.send(timestep)
      policy.receive()

    cost = timing.cost(ask)
    policy.close()
  return cost


@contextlib.contextmanager
def _replying(action: np.ndarray) -> Iterator[SocketServer]:
  """Yields a server in a thread of this process that gives every request the same reply."""
  server, done = SocketServer(), threading.Event()
  server.accept_messages_of(1 << 30)

  def serve() -> None:
    while not done.is_set():
      for connection, message in server.poll(None):
        codec.unpack(message, connection.memory)
        server.send(connection, codec.pack(action))

  thread = threading.Thread(target=serve, daemon=True)
  thread.start()
  try:
    yield server
  finally:
    done.set()
    server.wake()
    thread.join()
    server.close()
