"""The evaluator: decides when to evaluate and record, and reports it; a player plays the episodes."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from absl import logging

from agents.seeding import Seed
from nodes.evaluation.budget import EvaluationBudget
from nodes.evaluation.player import Player
from nodes.evaluation.video_schedule import VideoSchedule
from nodes.runtime import activity, lifecycle, rpc
from nodes.runtime.options import EvaluationOptions


class Evaluator:
  """Evaluates every `eval_period` actor steps, and once more with the final parameters."""

  def __init__(
    self,
    make_player: Callable[..., Player],
    arguments: Sequence[Any],
    monitor: Any,
    name: str,
    options: EvaluationOptions,
    seed: Seed,
  ):
    """Initialises an evaluator; the work starts in `run`.

    Args:
      make_player: takes `arguments`, `name`, `options` and `seed`.
      arguments: what the player needs, such as clients of the nodes whose policy it plays.
      monitor: Courier client of the monitor.
      name: of the node, such as 'evaluator/0'.
      options: of evaluation.
      seed: of the environments and, if the player computes actions, of these.
    """
    self._make_player = functools.partial(make_player, *arguments, name, options, seed)
    self._monitor, self._name, self._options = monitor, name, options
    limits = options.eval_share, options.eval_seconds
    self._budget = EvaluationBudget(*limits)
    self._videos = VideoSchedule(options.video_period, *limits)

  def run(self) -> None:
    """Evaluates until the final evaluation is done or the program stops."""
    activity.mark(activity.STARTING)
    self._stop = lifecycle.stop_event()
    with (
      contextlib.closing(self._make_player()) as player,
      contextlib.suppress(lifecycle.Stopped),
    ):
      activity.mark(activity.IDLE)
      player.prepare(self._stop.is_set)
      activity.mark(activity.IDLE)
      self._evaluate_periodically(player)

  def _evaluate_periodically(self, player: Player) -> None:
    due = 0
    while not self._stop.is_set():
      progress = self._call('progress')
      steps = progress['actor_steps']
      if progress['finished']:
        self._record(player, steps, final=True)
        self._call('final_evaluation', self._name, self._evaluate(player, final=True))
        return
      # A restarted learner may begin at an earlier step.
      due = min(due, steps + self._options.eval_period)
      if steps >= due and steps > 0 and self._budget.allows_another():
        due = steps + self._options.eval_period
        self._call('report', self._name, self._evaluate(player, final=False))
      if steps > 0:
        self._record(player, steps, final=False)
      activity.mark(activity.IDLE)
      self._stop.wait(0.2)

  def _evaluate(self, player: Player, final: bool) -> dict[str, float]:
    began = time.monotonic()
    is_out_of_time = self._budget.begin(final)
    returns, further = player.play(self._stop.is_set, is_out_of_time)
    seconds = time.monotonic() - began
    self._budget.took(seconds)
    activity.mark(activity.IDLE)
    expected = self._options.episodes_each * self._options.eval_envs
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

  def _record(self, player: Player, steps: float, final: bool) -> None:
    """Records a video, if one is due, and reports it."""
    if player.record is None or not self._options.video_period:
      return
    if not (final or self._videos.due()):
      return
    made = self._videos.make(player.record, self._stop.is_set, final)
    if made is not None:
      self._call('video', int(steps), made)
      self._call('report', self._name, {'video_seconds': self._videos.seconds})

  def _call(self, method: str, *args: Any) -> Any:
    """Calls the monitor; raises lifecycle.Stopped if the program stops."""
    start = functools.partial(getattr(self._monitor.futures, method), *args)
    return rpc.call(start, self._stop.is_set, method)


def standard_error(returns: Sequence[float] | np.ndarray) -> float:
  """Returns the standard error of the mean return, from the sample deviation; 0 for one episode."""
  return float(np.std(returns, ddof=min(1, len(returns) - 1)) / math.sqrt(len(returns)))
