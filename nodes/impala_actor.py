"""IMPALA's actor: environments, and inference of its own with parameters that it fetches.

The one kind of actor that imports JAX, and through Reverb TensorFlow.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
from acme import specs
from acme.utils import counting

from agents.agent import Agent
from agents.seeding import Seed
from environments.base import BatchedEnvironment, describe
from nodes.actor import Actor
from nodes.inference.action_service import ActionService
from nodes.inference.layout import StreamSpec
from nodes.learning.parameter_client import VariableClient
from nodes.runtime import activity, lifecycle


class ActingActor:
  """Steps a batch of environments with actions of its own.

  What acts and what assembles unrolls is an `InferenceServer` with a single stream, in this process;
  what steps the environments is an `Actor` that asks it. Only the parameters come from elsewhere.
  """

  def __init__(
    self,
    make_agent: Callable[[specs.Array, specs.Array], Agent],
    make_environment: Callable[[int, int], BatchedEnvironment],
    stream: StreamSpec,
    learner: Any,
    replay_addresses: Sequence[str],
    monitor: Any,
    *,
    num_environments: int,
    update_period: float,
    audit_dir: str,
    seed: Seed,
  ):
    """Initialises an actor; the work starts in `run`.

    Args:
      make_agent: builds the agent from the specs of observations and actions.
      make_environment: takes (number of environments, seed).
      stream: the actor's environments.
      learner: Courier client of the learner.
      replay_addresses: host:port of each Reverb server.
      monitor: Courier client of the monitor.
      num_environments: training environments of the whole program.
      update_period: seconds between questions for newer parameters.
      audit_dir: where every unroll is recorded; '' for nowhere. See `rundir.audit`.
      seed: different for every actor.
    """
    self._make_agent = make_agent
    self._make_environment = make_environment
    self._stream = stream
    self._learner = learner
    self._replay_addresses = replay_addresses
    self._monitor = monitor
    self._num_environments = num_environments
    self._update_period = update_period
    self._audit_dir = audit_dir
    self._seed = seed

  def run(self) -> None:
    """Acts until the learner says that training has finished, or the program stops."""
    stop = lifecycle.stop_event()
    spec, action_repeat = describe(self._make_environment)
    agent = self._make_agent(spec.observations, spec.actions)
    service = ActionService(
      agent,
      spec,
      [self._stream],
      jax.local_devices(backend='cpu')[:1],
      self._replay_addresses,
      counting.Counter(),
      action_repeat=action_repeat,
      batch_size=self._stream.num_envs,
      timeout=0.0,
      seed=self._seed.child('life', lifecycle.life()),
      num_environments=self._num_environments,
      audit_dir=self._audit_dir,
    )
    server = service.server
    actor_id = self._stream.actor_id
    variables = VariableClient(
      self._learner,
      actor_id,
      lifecycle.new_incarnation(),
      self._update_period,
      server.totals,
      server.set_params,
    )
    # From below: the client is closed last, which raises what it failed with.
    with (
      contextlib.suppress(lifecycle.Stopped),
      contextlib.closing(variables),
      contextlib.closing(service),
    ):
      activity.mark(activity.WAITING_FOR_PARAMETERS)
      if not variables.fetch(stop.is_set):
        return
      activity.mark(activity.COMPILING)
      service.compile()
      service.start()
      variables.start(service.check, server.close)
      Actor(
        self._make_environment,
        server,
        self._monitor,
        actor_id,
        self._stream.num_envs,
        1,
        self._seed,
      ).run()
