"""The evaluator: plays whole episodes without exploration, on environments of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import dm_env
import numpy as np

from environments.base import BatchedEnvironment
from nodes.inference.client import Connectable, RemotePolicy
from nodes.runtime import activity, lifecycle
from nodes.runtime.periodic_evaluator import Evaluated, EvaluationOptions, PeriodicEvaluator


class Policy(Protocol):
  """Chooses actions for a batch of timesteps: `RemotePolicy`, or a policy of this process."""

  def send(self, timestep: dm_env.TimeStep) -> None:
    """Takes the timesteps `[N]`."""

  def receive(self) -> np.ndarray | None:
    """Returns the actions `[N, ...]`; None when there are to be no more."""


class Episode(NamedTuple):
  """An episode that has ended; a whole game, where an episode is less (see `game_over`)."""

  episode_return: float  # Raw.
  length: int  # Steps.


def episodes(
  environment: BatchedEnvironment, policy: Policy, episodes_each: int
) -> Iterator[Episode]:
  """Yields each episode as it ends, `episodes_each` from every environment.

  Taking as many from each environment keeps short episodes from being counted more often.
  """
  timestep = environment.reset()
  returns = np.zeros(environment.num_envs)
  lengths = np.zeros(environment.num_envs, int)
  finished = np.zeros(environment.num_envs, int)
  while (finished < episodes_each).any():
    activity.mark(activity.WAITING_FOR_ACTIONS)
    policy.send(timestep)
    action = policy.receive()
    if action is None:
      raise lifecycle.Stopped
    activity.mark(activity.PLAYING)
    timestep = environment.step(action)
    returns += timestep.reward
    lengths += timestep.step_type != dm_env.StepType.FIRST
    over = environment.game_over
    if over is None:
      over = timestep.step_type == dm_env.StepType.LAST
    taken = over & (finished < episodes_each)
    yield from map(Episode, returns[taken].tolist(), lengths[taken].tolist())
    finished += over
    returns[over], lengths[over] = 0.0, 0


def returns(
  inference: Connectable,
  environment: BatchedEnvironment,
  episodes_each: int,
  should_stop: Callable[[], bool],
) -> list[float]:
  """Returns the raw returns of `episodes`, played in one life of the evaluator's stream.

  Raises:
    lifecycle.Stopped: when `should_stop` says so.
  """
  policy = RemotePolicy(inference, 'evaluator/0', lifecycle.new_incarnation(), 0, should_stop)
  with contextlib.closing(policy):
    return [e.episode_return for e in episodes(environment, policy, episodes_each)]


class Evaluator(PeriodicEvaluator):
  """Evaluates every `period` actor steps, and once more with the final parameters.

  It asks the same inference server as the actors; its slots act by `evaluation_exploration` and its
  rows are not stored. While training goes on, newer parameters may arrive within an episode; the
  final evaluation has one version only.
  """

  def __init__(
    self,
    make_environment: Callable[[int, int], BatchedEnvironment],
    inference: Any,
    monitor: Any,
    options: EvaluationOptions,
  ):
    """Initialises an evaluator.

    Args:
      make_environment: takes (number of environments, seed).
      inference: the inference server, as it can be connected to, which expects `num_envs` environments.
      monitor: Courier client of the monitor.
      options: of evaluation.
    """
    super().__init__(monitor, options)
    self._make_environment = make_environment
    self._inference = inference

  def run(self) -> None:
    """Evaluates until the final evaluation is done or the program stops."""
    seed = self._seed.child('life', lifecycle.restart_count(), 'environments').number()
    with contextlib.closing(self._make_environment(self._num_envs, seed)) as environment:

      def play(should_stop: Callable[[], bool]) -> Evaluated:
        return returns(self._inference, environment, self._episodes_each, should_stop), {}

      self._run_periodically(play)
