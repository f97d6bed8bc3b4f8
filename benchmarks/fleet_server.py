"""The inference node of a fleet of light actors, in a separate process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
from acme.utils import counting

import courier
from agents.seeding import Seed
from agents.types import Unroll
from environments import registry as environments
from nodes.inference.layout import layout
from nodes.inference.server import InferenceServer
from nodes.inference.socket_server import SocketServer
from nodes.runtime import lifecycle
from programs import registry as programs


class Discard:
  """An unroll writer that drops all unrolls."""

  def put(self, unrolls: Unroll, release: Callable[[], None]) -> None:
    """Drops unrolls."""
    release()

  def compile(self, sizes: Iterable[int]) -> None:
    """Does nothing."""

  def start(self) -> None:
    """Does nothing."""

  def check(self) -> None:
    """Does nothing."""

  def close(self) -> None:
    """Does nothing."""


def serve(
  program: str, config: Any, num_actors: int, batch_size: int, actors_port: int, port: int
) -> None:
  """Serves actions like a program's inference node until the process ends; drops the unrolls.

  Args:
    program: the program whose agent acts.
    config: resolved options.
    num_actors: number of actors, each with one group of `envs_per_actor` environments.
    batch_size: maximum environments in an inference batch.
    actors_port: port for the actors.
    port: port of a Courier server with a method `measure`; it opens once everything is compiled.
  """
  spec = environments.make_spec(config.run.env, config.run.env_options)
  agent = programs.load(program).make_agent(config)(spec.observations, spec.actions)
  seed = Seed(config.run.seed)
  env_groups = layout(num_actors, config.acting.envs_per_actor, 1)
  inference = InferenceServer(
    agent,
    env_groups,
    [jax.local_devices()[i] for i in config.inference.actor_devices],
    spec,
    writer=Discard(),
    counter=counting.Counter(),
    action_repeat=1,
    batch_size=batch_size,
    timeout=config.inference.inference_timeout_ms / 1e3,
    seed=seed,
    inbox=SocketServer(actors_port, shared_memory=config.inference.shared_memory),
  )
  inference.set_params(0, agent.init(seed.child('parameters').key()).params)
  inference.compile()
  inference.start()
  server = courier.Server(port=port)
  server.Bind('measure', inference.measure)
  server.Start()
  lifecycle.stop_event().wait()
