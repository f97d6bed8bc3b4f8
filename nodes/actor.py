"""The actor: environments and an inference client. Imports neither JAX nor TensorFlow."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from agents.seeding import Seed
from environments.base import BatchedEnvironment, Exhausted
from nodes.inference.client import Connectable, RemotePolicy
from nodes.runtime import activity, lifecycle
from nodes.runtime.reporter import Reporter


class Actor:
  """Steps groups of environments with actions from the inference server.

  With two groups, the actor steps one while the other waits for its actions.
  """

  def __init__(
    self,
    make_environment: Callable[[int, int], BatchedEnvironment],
    inference: Connectable,
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
      env_groups: number of groups to split them into.
      seed: different for each actor.
    """
    self._make_environment = make_environment
    self._inference = inference
    self._actor_id = actor_id
    self._num_envs = num_envs
    self._env_groups = env_groups
    self._seed = seed
    self._stepping = 0.0
    self._waiting = 0.0
    self._measured = (0.0, 0.0)
    self._reporter = Reporter(monitor, actor_id, self._measure, period=2.0)

  def run(self) -> None:
    """Acts until training has finished or the program stops.

    An exhausted environment stops the program.

    Raises:
      ValueError: if the server refuses a timestep, or a newer incarnation has replaced this one.
    """
    activity.mark(activity.STARTING)
    should_stop = lifecycle.stop_event().is_set
    incarnation = lifecycle.new_incarnation()
    size = self._num_envs // self._env_groups
    # The restart count in the seed keeps a restarted actor from repeating episodes.
    seed = self._seed.child('restart', lifecycle.restart_count(), 'environments')
    with self._reporter, contextlib.ExitStack() as opened:
      groups = []
      for group in range(self._env_groups):
        environment = self._make_environment(size, seed.child(group).number())
        opened.callback(environment.close)
        policy = RemotePolicy(self._inference, self._actor_id, incarnation, group, should_stop)
        opened.callback(policy.close)
        policy.send(environment.reset())
        groups.append((environment, policy))
      try:
        while self._step(groups):
          self._reporter.maybe_report()
      except lifecycle.Stopped:
        pass
      except Exhausted:
        lifecycle.stop_program()

  def _step(self, groups: list[tuple[BatchedEnvironment, RemotePolicy]]) -> bool:
    for environment, policy in groups:
      started = time.monotonic()
      activity.mark(activity.WAITING_FOR_ACTIONS)
      action = policy.receive()
      received = time.monotonic()
      self._waiting += received - started
      if action is None:
        return False
      activity.mark(activity.PLAYING)
      policy.send(environment.step(action), environment.game_over)
      self._stepping += time.monotonic() - received
    return True

  def _measure(self, seconds: float) -> dict[str, float]:
    stepping, waiting = self._measured
    self._measured = self._stepping, self._waiting
    return {
      'stepping_share': (self._stepping - stepping) / seconds,
      'waiting_share': (self._waiting - waiting) / seconds,
    }
