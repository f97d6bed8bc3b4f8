"""The evaluator: plays whole episodes without exploration, on environments nobody trains on."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from environments.base import BatchedEnvironment
from nodes import lifecycle, rpc
from nodes.actor import RemotePolicy, episode_returns
from nodes.reporter import Reporter


class Evaluator:
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
    num_envs: int,
    episodes: int,
    period: int,
    seed: int,
  ):
    """Initialises an evaluator.

    Args:
      make_environment: takes (number of environments, seed).
      inference: Courier client of the inference server.
      monitor: Courier client of the monitor.
      num_envs: environments, as declared to the server.
      episodes: in one evaluation, rounded up to a multiple of `num_envs`.
      period: actor steps between evaluations.
      seed: of the environments.
    """
    self._make_environment = make_environment
    self._inference = inference
    self._monitor = monitor
    self._num_envs = num_envs
    self._episodes_each = math.ceil(episodes / num_envs)
    self._period = period
    self._seed = seed

  def run(self) -> None:
    """Evaluates until the final evaluation is done or the program stops."""
    environment = self._make_environment(self._num_envs, self._seed)

    def play(should_stop: Callable[[], bool]) -> tuple[Sequence[float], Mapping[str, float]]:
      policy = RemotePolicy(self._inference, 'evaluator/0', lifecycle.new_run_id(), 0, should_stop)
      return list(episode_returns(environment, policy, self._episodes_each)), {}

    try:
      evaluate_now_and_then(self._monitor, self._period, play)
    finally:
      environment.close()


def evaluate_now_and_then(
  monitor: Any,
  period: int,
  play: Callable[[Callable[[], bool]], tuple[Sequence[float], Mapping[str, float]]],
) -> None:
  """Evaluates until the final evaluation is done or the program stops.

  Args:
    monitor: Courier client of the monitor.
    period: actor steps between evaluations.
    play: returns the raw returns of some episodes, and what else to report; raises lifecycle.Stopped
      when the function that it is given, and often calls, says so.
  """
  stop = lifecycle.stop_event()
  reporter = Reporter(monitor, 'evaluator/0')

  def should_stop() -> bool:
    reporter.beat()
    return stop.is_set()

  def tell(method: str, *args: Any) -> Any:
    ask = functools.partial(getattr(monitor.futures, method), *args)
    return rpc.call(ask, should_stop, method)

  def evaluate() -> dict[str, float]:
    returns, further = play(should_stop)
    return {
      **further,
      'evaluator_return': float(np.mean(returns)),
      'evaluator_return_stderr': float(np.std(returns) / math.sqrt(len(returns))),
      'evaluator_episodes': float(len(returns)),
    }

  due = 0
  try:
    while not stop.is_set():
      progress = tell('progress')
      if progress['finished']:
        tell('final_evaluation', evaluate())
        return
      if progress['actor_steps'] >= due and progress['actor_steps'] > 0:
        due = progress['actor_steps'] + period
        tell('report', 'evaluator/0', evaluate())
      stop.wait(0.2)
  except lifecycle.Stopped:
    pass
  finally:
    reporter.close()
