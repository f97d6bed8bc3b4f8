"""Base of evaluators: schedules evaluations and reports them."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from agents.seeding import Seed
from nodes.runtime import activity, lifecycle, rpc
from nodes.runtime.evaluation_budget import EvaluationBudget

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
    share: see `EvaluationBudget`.
    final_seconds: likewise.
  """

  num_envs: int
  episodes: int
  period: int
  seed: Seed
  share: float = 1.0
  final_seconds: float = 0.0


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
    self._budget = EvaluationBudget(options.share, options.final_seconds)

  def _run_periodically(
    self, play: Callable[[Callable[[], bool], Callable[[], bool]], Evaluated]
  ) -> None:
    """Evaluates until the final evaluation is done or the program stops.

    Args:
      play: plays an evaluation and returns its raw returns and additional measurements. It calls its
        first argument, `should_stop`, often, and raises lifecycle.Stopped once that returns True. Its
        second argument, `is_late`, returns whether to end after the present round of episodes.
    """
    stop = lifecycle.stop_event()
    expected = self._episodes_each * self._num_envs

    def tell(method: str, *args: Any) -> Any:
      ask = functools.partial(getattr(self._monitor.futures, method), *args)
      return rpc.call(ask, stop.is_set, method)

    def evaluate(final: bool) -> dict[str, float]:
      began = time.monotonic()
      returns, further = play(stop.is_set, self._budget.begin(final))
      seconds = time.monotonic() - began
      self._budget.took(seconds)
      activity.mark(activity.IDLE)
      if len(returns) < expected:
        limit = 'eval_seconds' if final else 'eval_share'
        logging.info(
          'evaluated %d of %d episodes in %.0f s, as --%s allows',
          len(returns),
          expected,
          seconds,
          limit,
        )
      return {
        **further,
        'evaluator_return': float(np.mean(returns)),
        'evaluator_return_stderr': float(np.std(returns) / math.sqrt(len(returns))),
        'evaluator_episodes': float(len(returns)),
        'evaluator_seconds': seconds,
      }

    due = 0
    activity.mark(activity.IDLE)
    try:
      while not stop.is_set():
        progress = tell('progress')
        if progress['finished']:
          tell('final_evaluation', evaluate(final=True))
          return
        steps = progress['actor_steps']
        if steps >= due and steps > 0 and self._budget.allows_another():
          due = steps + self._period
          tell('report', 'evaluator/0', evaluate(final=False))
        activity.mark(activity.IDLE)
        stop.wait(0.2)
    except lifecycle.Stopped:
      pass
