"""Base of evaluators: schedules evaluations and reports them."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from agents.seeding import Seed
from nodes.runtime import activity, lifecycle, rpc

# Raw returns of episodes, and additional measurements to report.
Evaluated = tuple[Sequence[float], Mapping[str, float]]


@dataclasses.dataclass(frozen=True)
class EvaluationOptions:
  """Options of an evaluator.

  Attributes:
    num_envs: number of environments stepped in parallel.
    episodes: number per evaluation, rounded up to a multiple of `num_envs`.
    period: actor steps between evaluations.
    seed: of the environments and, if the evaluator runs inference, of its actions.
  """

  num_envs: int
  episodes: int
  period: int
  seed: Seed


class PeriodicEvaluator:
  """Evaluates every `period` actor steps, and once more with the final parameters."""

  def __init__(self, monitor: Any, options: EvaluationOptions):
    """Initialises an evaluator.

    Args:
      monitor: Courier client of the monitor.
      options: of evaluation.
    """
    self._monitor = monitor
    self._num_envs = options.num_envs
    self._episodes_each = math.ceil(options.episodes / options.num_envs)
    self._period = options.period
    self._seed = options.seed

  def _run_periodically(self, play: Callable[[Callable[[], bool]], Evaluated]) -> None:
    """Evaluates until the final evaluation is done or the program stops.

    Args:
      play: plays an evaluation and returns its raw returns and additional measurements. It calls its
        argument, `should_stop`, often, and raises lifecycle.Stopped once that returns True.
    """
    stop = lifecycle.stop_event()

    def tell(method: str, *args: Any) -> Any:
      ask = functools.partial(getattr(self._monitor.futures, method), *args)
      return rpc.call(ask, stop.is_set, method)

    def evaluate() -> dict[str, float]:
      returns, further = play(stop.is_set)
      activity.mark(activity.IDLE)
      return {
        **further,
        'evaluator_return': float(np.mean(returns)),
        'evaluator_return_stderr': float(np.std(returns) / math.sqrt(len(returns))),
        'evaluator_episodes': float(len(returns)),
      }

    due = 0
    activity.mark(activity.IDLE)
    try:
      while not stop.is_set():
        progress = tell('progress')
        if progress['finished']:
          tell('final_evaluation', evaluate())
          return
        if progress['actor_steps'] >= due and progress['actor_steps'] > 0:
          due = progress['actor_steps'] + self._period
          tell('report', 'evaluator/0', evaluate())
        activity.mark(activity.IDLE)
        stop.wait(0.2)
    except lifecycle.Stopped:
      pass
