"""The inference node that a fleet of light actors asks, in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import courier
import jax
from acme.utils import counting

from agents.seeding import Seed
from agents.types import Unroll
from environments import registry as environments
from nodes.inference.layout import layout
from nodes.inference.server import InferenceServer
from nodes.inference.socket_server import SocketServer
from nodes.runtime import lifecycle
from programs import registry as programs


class Discard:
  """Takes unrolls and drops them."""

  def put(self, unrolls: Unroll, release: Callable[[], None]) -> None:
    """Drops unrolls."""
    release()

  def compile(self, sizes: Iterable[int]) -> None:
    """Nothing is compiled."""

  def start(self) -> None:
    """Nothing is started."""

  def check(self) -> None:
    """Nothing fails."""

  def close(self) -> None:
    """Nothing is open."""


def serve(
  program: str, config: Any, num_actors: int, batch_size: int, actors_port: int, port: int
) -> None:
  """Answers until the process ends, as a program's inference does; throws its unrolls away.

  Args:
    program: whose agent acts.
    config: resolved.
    num_actors: each asks for one stream of `envs_per_actor` environments.
    batch_size: environments in an inference batch at most.
    actors_port: for the actors.
    port: of a Courier server with a method `measure`, once everything is compiled.
  """
  spec = environments.make_spec(config.env, config.env_options)
  agent = programs.load(program).make_agent(config)(spec.observations, spec.actions)
  seed = Seed(config.seed)
  streams = layout(num_actors, config.envs_per_actor, 1)
  inference = InferenceServer(
    agent,
    streams,
    [jax.local_devices()[i] for i in config.actor_devices],
    spec,
    Discard(),
    counting.Counter(),
    1,
    batch_size,
    config.inference_timeout_ms / 1e3,
    seed,
    inbox=SocketServer(actors_port),
  )
  inference.set_params(0, agent.init(seed.child('parameters').key()).params)
  inference.compile()
  inference.start()
  server = courier.Server(port=port)
  server.Bind('measure', inference.measure)
  server.Start()
  lifecycle.stop_event().wait()
