"""Actions for streams of environments, and their unrolls into replay: what every node that acts does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from acme import specs
from acme.utils import counting

from agents.agent import Agent
from agents.seeding import Seed
from agents.types import Nest
from nodes.inference.layout import StreamSpec
from nodes.inference.server import InferenceServer
from nodes.inference.socket_server import Inbox
from nodes.unrolls.emitter import Emitter


class ActionService:
  """An inference server, and an emitter of what its actions led to. A `nodes.learning.loop.Service`.

  Attributes:
    server: who asks, asks this one.
  """

  def __init__(
    self,
    agent: Agent,
    environment_spec: specs.EnvironmentSpec,
    streams: Sequence[StreamSpec],
    devices: Sequence[jax.Device],
    replay_addresses: Sequence[str],
    counter: counting.Counter,
    *,
    action_repeat: int,
    batch_size: int,
    timeout: float,
    seed: Seed,
    num_environments: int,
    audit_dir: str,
    watchers: Sequence[Any] = (),
    inbox: Inbox | None = None,
  ):
    """Initialises a service; `set_params` and `compile` come before `start`.

    Args:
      agent: the algorithm.
      environment_spec: of one environment.
      streams: who will ask.
      devices: the actor devices.
      replay_addresses: host:port of each Reverb server.
      counter: gets `actor_steps` and `environment_frames`.
      action_repeat: environment frames behind one actor step.
      batch_size: environments in an inference batch at most.
      timeout: seconds that a request may wait for a fuller batch.
      seed: of the action sampling.
      num_environments: training environments of the whole program.
      audit_dir: where every unroll is recorded; '' for nowhere. See `rundir.audit`.
      watchers: clients of nodes that see unrolls go by. See `nodes.unrolls.observers`.
      inbox: where requests come in; None: only from this process.
    """
    sizes = {stream.num_envs for stream in streams if stream.training}
    self._emitter = Emitter(agent, environment_spec, sizes, replay_addresses, audit_dir, watchers)
    self.server = InferenceServer(
      agent,
      streams,
      devices,
      environment_spec,
      self._emitter.put,
      counter,
      action_repeat,
      batch_size,
      timeout,
      seed,
      num_environments=num_environments,
      inbox=inbox,
    )
    self.set_params: Callable[[int, Nest], None] = self.server.set_params
    self.measure = self.server.measure
    self.finish_training = self.server.finish_training

  def compile(self) -> None:
    """Compiles, so that nothing is compiled while serving."""
    self.server.compile()
    self._emitter.compile()

  def start(self) -> None:
    """Begins to answer, once Reverb has been imported."""
    self._emitter.start()
    self.server.start()

  def check(self) -> None:
    """Raises what serving or writing has failed with, if it has."""
    self._emitter.check()
    self.server.check()

  def close(self) -> None:
    """Stops both; what replay has not taken is given up."""
    self._emitter.close()
    self.server.close()
