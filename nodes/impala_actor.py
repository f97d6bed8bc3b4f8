"""IMPALA's actor: environments, and local inference with parameters fetched from the learner.

The only kind of actor that imports JAX and Reverb.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
from acme import specs

from agents.agent import Agent
from agents.seeding import Seed
from environments.base import BatchedEnvironment, describe
from nodes.actor import Actor
from nodes.inference.layout import EnvGroupSpec
from nodes.inference.options import InferenceOptions
from nodes.inference.server import make_server
from nodes.learning.parameter_client import make_parameter_client
from nodes.runtime import activity, lifecycle
from nodes.unrolls.options import UnrollSinks


class ImpalaActor:
  """Steps a batch of environments with actions computed in this process.

  An `InferenceServer` with a single environment group acts and assembles unrolls. An `Actor` steps
  the environments and sends its requests to that server. Only the parameters come from another process.
  """

  def __init__(
    self,
    make_agent: Callable[[specs.Array, specs.Array], Agent],
    make_environment: Callable[[int, int], BatchedEnvironment],
    env_group: EnvGroupSpec,
    learner: Any,
    replay_addresses: Sequence[str],
    monitor: Any,
    *,
    seed: Seed,
    num_environments: int,
    sinks: UnrollSinks,
    update_period: float,
  ):
    """Initialises an actor; the work starts in `run`.

    Args:
      make_agent: builds the agent from the specs of observations and actions.
      make_environment: takes (number of environments, seed).
      env_group: the actor's environments.
      learner: Courier client of the learner.
      replay_addresses: host:port of each Reverb server.
      monitor: Courier client of the monitor.
      seed: of its environments and of action sampling.
      num_environments: training environments of the whole program.
      sinks: where the unrolls are written.
      update_period: seconds between parameter fetches.
    """
    self._make_agent = make_agent
    self._make_environment = make_environment
    self._env_group = env_group
    self._learner = learner
    self._replay_addresses = replay_addresses
    self._monitor = monitor
    self._seed, self._num_environments, self._sinks = seed, num_environments, sinks
    self._update_period = update_period

  def run(self) -> None:
    """Acts until training has finished or the program stops."""
    activity.mark(activity.STARTING)
    stop = lifecycle.stop_event()
    spec, action_repeat = describe(self._make_environment)
    agent = self._make_agent(spec.observations, spec.actions)
    server = make_server(
      # A batch is this actor's own request, so it never waits for others.
      InferenceOptions(inference_batch_size=self._env_group.num_envs, inference_timeout_ms=0.0),
      agent,
      [self._env_group],
      jax.local_devices(backend='cpu')[:1],
      spec,
      action_repeat,
      seed=self._seed,
      num_environments=self._num_environments,
      replay_addresses=self._replay_addresses,
      sinks=self._sinks,
    )
    actor_id = self._env_group.actor_id
    client = make_parameter_client(self._learner, actor_id, self._update_period, server, agent)
    # Contexts exit in reverse order: the server first, then the client, which raises its error, if any.
    with (
      contextlib.suppress(lifecycle.Stopped),
      contextlib.closing(client),
      contextlib.closing(server),
    ):
      activity.mark(activity.WAITING_FOR_PARAMETERS)
      if not client.fetch(stop.is_set):
        return
      activity.mark(activity.COMPILING)
      server.compile()
      server.start()
      client.start(server.check, server.close)
      Actor(
        self._make_environment,
        server,
        self._monitor,
        actor_id,
        self._env_group.num_envs,
        1,
        self._seed,
      ).run()
