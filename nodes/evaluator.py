"""The evaluator: plays whole episodes without exploration, on environments nobody trains on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from environments.base import BatchedEnvironment
from nodes.actor import RemotePolicy, episode_returns
from nodes.inference.client import Connectable
from nodes.runtime import lifecycle
from nodes.runtime.periodic_evaluator import Evaluated, EvaluationOptions, PeriodicEvaluator


def returns(
  inference: Connectable,
  environment: BatchedEnvironment,
  episodes_each: int,
  should_stop: Callable[[], bool],
) -> list[float]:
  """Returns the raw returns of `nodes.actor.episodes`, played in one life of the evaluator's stream.

  Raises:
    lifecycle.Stopped: when `should_stop` says so.
  """
  policy = RemotePolicy(inference, 'evaluator/0', lifecycle.new_incarnation(), 0, should_stop)
  with contextlib.closing(policy):
    return list(episode_returns(environment, policy, episodes_each))


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
