"""The loop of an actor: environments and their policies. Imports no JAX."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from agents.seeding import Seed
from environments.base import BatchedEnvironment
from nodes.inference.client import ActingServer, Policy
from nodes.runtime import activity, lifecycle


class EnvironmentLoop:
  """Steps groups of environments with actions from an inference server.

  With two groups, the loop steps one while the other waits for its actions.
  """

  def __init__(
    self,
    inference: ActingServer,
    make_environment: Callable[[int, int], BatchedEnvironment],
    actor_id: str,
    num_envs: int,
    env_groups: int,
    seed: Seed,
  ):
    """Initialises a loop; `run` creates its environments.

    Args:
      inference: the inference server.
      make_environment: takes (number of environments, seed).
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

  def run(
    self,
    should_stop: Callable[[], bool],
    mark: Callable[[activity.Activity], None],
    after_round: Callable[[], None] = lambda: None,
  ) -> None:
    """Acts until training has finished or `should_stop` returns True.

    Args:
      should_stop: polled while waiting for actions.
      mark: is told whether the loop plays or waits for actions.
      after_round: called whenever each group has been stepped.

    Raises:
      Exhausted: at the end of an experiment with a fixed number of episodes.
      ValueError: if the server refuses a timestep, or a newer incarnation has replaced this one.
    """
    incarnation = lifecycle.new_incarnation()
    size = self._num_envs // self._env_groups
    # The restart count in the seed keeps a restarted actor from repeating episodes.
    seed = self._seed.child('restart', lifecycle.restart_count(), 'environments')
    with contextlib.suppress(lifecycle.Stopped), contextlib.ExitStack() as opened:
      groups = []
      for group in range(self._env_groups):
        environment = self._make_environment(size, seed.child(group).number())
        opened.callback(environment.close)
        policy = self._inference.policy(self._actor_id, incarnation, group, should_stop)
        opened.callback(policy.close)
        policy.send(environment.reset())
        groups.append((environment, policy))
      while self._step(groups, mark):
        after_round()

  def measure(self, seconds: float) -> dict[str, float]:
    """Returns the shares of the last `seconds` in which the loop stepped, and waited for actions."""
    stepping, waiting = self._measured
    self._measured = self._stepping, self._waiting
    return {
      'stepping_share': (self._stepping - stepping) / seconds,
      'waiting_share': (self._waiting - waiting) / seconds,
    }

  def _step(
    self,
    groups: list[tuple[BatchedEnvironment, Policy]],
    mark: Callable[[activity.Activity], None],
  ) -> bool:
    for environment, policy in groups:
      started = time.monotonic()
      mark(activity.WAITING_FOR_ACTIONS)
      action = policy.receive()
      received = time.monotonic()
      self._waiting += received - started
      if action is None:
        return False
      mark(activity.PLAYING)
      timestep = environment.step(action)
      stepped = time.monotonic()
      self._stepping += stepped - received
      policy.send(timestep, environment.game_over)  # May compute actions, in the server's process.
      self._waiting += time.monotonic() - stepped
    return True
