"""Base of evaluators: schedules evaluations and reports them."""

from __future__ import annotations

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
from nodes.runtime.options import EvaluationOptions
from nodes.runtime.video_schedule import VideoRecording, VideoSchedule

# Raw returns of episodes, and additional measurements to report.
Evaluated = tuple[Sequence[float], Mapping[str, float]]
Play = Callable[[Callable[[], bool], Callable[[], bool]], Evaluated]


def standard_error(returns: Sequence[float] | np.ndarray) -> float:
  """Returns the standard error of the mean return, from the sample deviation; 0 for one episode."""
  return float(np.std(returns, ddof=min(1, len(returns) - 1)) / math.sqrt(len(returns)))


class PeriodicEvaluator:
  """Evaluates every `period` actor steps, and once more with the final parameters."""

  def __init__(self, monitor: Any, name: str, options: EvaluationOptions, seed: Seed):
    """Initialises an evaluator.

    Args:
      monitor: Courier client of the monitor.
      name: of the node, such as 'evaluator/0'.
      options: of evaluation.
      seed: of the environments and, if the evaluator runs inference, of its actions.
    """
    self._monitor = monitor
    self._name = name
    self._num_envs = options.eval_envs
    self._episodes_each = math.ceil(options.eval_episodes / options.eval_envs)
    self._max_steps = options.eval_episode_steps
    self._period = options.eval_period
    self._seed = seed
    self._budget = EvaluationBudget(options.eval_share, options.eval_seconds)
    self._videos = VideoSchedule(options.video_period, options.eval_share, options.eval_seconds)
    self._video_frames = options.video_frames if options.video_period else 0

  def _run_periodically(
    self,
    play: Play,
    recording: VideoRecording | None = None,
    prepare: Callable[[Callable[[], bool]], object] = lambda should_stop: None,
  ) -> None:
    """Evaluates until the final evaluation is done or the program stops.

    Args:
      play: plays an evaluation and returns its raw returns and additional measurements. It calls its
        first argument, `should_stop`, often, and raises lifecycle.Stopped once that returns True. Its
        second argument, `is_out_of_time`, returns whether to end after the current round of episodes.
      recording: records a video; None for no videos.
      prepare: called once before the first evaluation, with `should_stop`. What it takes, such as the
        compilation of the policy, counts neither as an evaluation nor against its share of the time.
    """
    stop = lifecycle.stop_event()
    expected = self._episodes_each * self._num_envs

    def call(method: str, *args: Any) -> Any:
      start = functools.partial(getattr(self._monitor.futures, method), *args)
      return rpc.call(start, stop.is_set, method)

    def evaluate(final: bool) -> dict[str, float]:
      began = time.monotonic()
      is_out_of_time = self._budget.begin(final)
      returns, further = play(stop.is_set, is_out_of_time)
      seconds = time.monotonic() - began
      self._budget.took(seconds)
      activity.mark(activity.IDLE)
      if len(returns) < expected:
        limit = 'eval_seconds' if final else 'eval_share'
        limit = limit if is_out_of_time() else 'eval_episode_steps'
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
        'evaluator_return_stderr': standard_error(returns),
        'evaluator_episodes': float(len(returns)),
        'evaluator_seconds': seconds,
      }

    def record(steps: float, final: bool) -> None:
      if recording is None or not (final or self._videos.due()):
        return
      made = self._videos.make(recording, stop.is_set, final)
      if made is not None:
        call('video', int(steps), made)
        call('report', self._name, {'video_seconds': self._videos.seconds})

    due = 0
    activity.mark(activity.IDLE)
    try:
      prepare(stop.is_set)
      activity.mark(activity.IDLE)
      while not stop.is_set():
        progress = call('progress')
        if progress['finished']:
          record(progress['actor_steps'], final=True)
          call('final_evaluation', self._name, evaluate(final=True))
          return
        steps = progress['actor_steps']
        due = min(due, steps + self._period)  # A restarted learner may begin at an earlier step.
        if steps >= due and steps > 0 and self._budget.allows_another():
          due = steps + self._period
          call('report', self._name, evaluate(final=False))
        if steps > 0:
          record(steps, final=False)
        activity.mark(activity.IDLE)
        stop.wait(0.2)
    except lifecycle.Stopped:
      pass
