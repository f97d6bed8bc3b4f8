"""The actor: environments and an inference client. Imports neither JAX nor TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agents.seeding import Seed
from environments.base import BatchedEnvironment, Exhausted
from nodes.inference.client import ActingServer
from nodes.inference.environment_loop import EnvironmentLoop
from nodes.runtime import activity, lifecycle
from nodes.runtime.reporter import Reporter


class Actor:
  """Steps groups of environments with actions from the inference server, in a process of its own."""

  def __init__(
    self,
    make_environment: Callable[[int, int], BatchedEnvironment],
    inference: ActingServer,
    monitor: Any,
    actor_id: str,
    num_envs: int,
    env_groups: int,
    seed: Seed,
  ):
    """Initialises an actor; `run` creates its environments.

    Args:
      make_environment: takes (number of environments, seed).
      inference: the inference server.
      monitor: Courier client of the monitor.
      actor_id: such as 'actor/3'.
      num_envs: environments of this actor.
      env_groups: number of groups into which they are split.
      seed: different for each actor.
    """
    self._loop = EnvironmentLoop(inference, make_environment, actor_id, num_envs, env_groups, seed)
    self._reporter = Reporter(monitor, actor_id, self._loop.measure, period=2.0)

  def run(self) -> None:
    """Acts until training has finished or the program stops.

    An exhausted environment stops the program.

    Raises:
      ValueError: if the server refuses a timestep, or a newer incarnation has replaced this one.
    """
    activity.mark(activity.STARTING)
    should_stop = lifecycle.stop_event().is_set
    with self._reporter:
      try:
        self._loop.run(should_stop, activity.mark, self._reporter.maybe_report)
      except Exhausted:
        lifecycle.stop_program()
