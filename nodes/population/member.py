"""A member's side of a population: reports its scores, and continues as the leaderboard says."""

from __future__ import annotations

import collections
import functools
import math
import time
from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Any

import jax
import numpy as np
from absl import logging

from agents.tuned import TunedState, inherited
from nodes.learning import serialisation
from nodes.population.options import Place
from nodes.runtime import lifecycle, rpc

_RETRY_SECONDS = 1.0


class Member:
  """Reports a score each time that it is ready, and never waits for the reply.

  The score is the mean return of the episodes that have ended in the last `ready_steps` steps, with the
  tuned values of that time. Training goes on until the reply is there, also while the leaderboard is
  away. Then the same report is sent again; the next one comes after it. A pod whose siblings have no
  score yet asks again too, with a newer report once it has one.
  """

  def __init__(self, place: Place):
    """Initialises one incarnation of a member."""
    self._place = place
    self._incarnation = lifecycle.new_incarnation()
    self._number = 0
    self._window: collections.deque[tuple[int, float, float]] = collections.deque()
    self._unreported = 0  # Steps since the last report.
    self._diverged = False
    self._ask: Callable[[], futures.Future] | None = None
    self._reply: futures.Future | None = None
    self._retry_at = 0.0
    self._undecided = False  # The reply was that siblings have to report first.
    self._end: Callable[[], futures.Future] | None = None  # Reports the end, after `finish`.
    self._copies = 0
    self._score = math.nan

  def played(self, steps: int, episodes: float, return_sum: float) -> None:
    """Counts what one call of the loop has played.

    Args:
      steps: rows.
      episodes: that have ended.
      return_sum: of these.
    """
    self._window.append((steps, episodes, return_sum))
    self._unreported += steps
    covered = sum(steps for steps, _, _ in self._window)
    while covered - self._window[0][0] >= self._place.ready_steps:
      covered -= self._window.popleft()[0]

  def diverge(self) -> None:
    """Notes that an update was not finite: the next report is without a score."""
    self._diverged = True

  def exchange(self, learner: TunedState, counts: Mapping[str, int]) -> TunedState | None:
    """Sends a report if one is due, and looks for the reply to the last one.

    Args:
      learner: the learner state, on devices.
      counts: the counters.

    Returns:
      The learner state to continue with, as NumPy arrays; None to continue with `learner`.

    Raises:
      Exception: what the leaderboard has raised, unless that passes.
      ValueError: if the member that it copies has another network; one sentence.
    """
    if (self._ask is None or self._undecided) and self._is_ready():
      self._ask = self._next_report(learner, counts)
      self._post()
    elif self._undecided and time.monotonic() >= self._retry_at:
      self._post()
    if self._ask is None or not self._replied():
      return None
    assert self._reply is not None
    reply, self._ask = self._reply.result(), None
    return self._followed(learner, *reply)

  def finish(
    self, learner: TunedState, counts: Mapping[str, int], should_stop: Callable[[], bool]
  ) -> TunedState | None:
    """Waits for the reply to a pending report, and reports the score and the end.

    A member that has been replaced a moment ago has none, and keeps its rank. A pod does not wait for
    its siblings.

    Returns:
      The learner state that the reply asks for, as NumPy arrays; None for `learner`.

    Raises:
      lifecycle.Stopped: once `should_stop` returns True.
    """
    found = self._last_reply(learner, should_stop)
    covered = sum(steps for steps, _, _ in self._window)
    has_score = self._has_score() and not self._diverged and covered >= self._place.ready_steps
    if found is None and has_score:
      rpc.call(self._next_report(learner, counts), should_stop, 'report')
    params = None
    if math.isnan(self._score) and not self._diverged:
      params = serialisation.to_data(learner.params if found is None else found.params)
    self._end = functools.partial(
      self._place.leaderboard.futures.finished, self._place.number, dict(counts), params
    )
    rpc.call(self._end, should_stop, 'finished')
    return found

  def repeat_end(self) -> futures.Future:
    """Reports the end again after `finish`, as a restarted leaderboard needs it; does not wait."""
    assert self._end is not None
    return self._end()

  def _last_reply(self, learner: TunedState, should_stop: Callable[[], bool]) -> TunedState | None:
    """Returns what the reply to a pending report asks for; None if there is none."""
    if self._ask is None:
      return None
    reply = rpc.call(self._ask, should_stop, 'report')
    if reply is None:
      return None
    self._ask = None
    return self._followed(learner, *reply)

  def measure(self) -> dict[str, float]:
    """Returns the last score that was reported, and how often this incarnation was replaced."""
    return {'score': self._score, 'copies': float(self._copies)}

  def _is_ready(self) -> bool:
    ready = self._unreported >= self._place.ready_steps
    return ready and (self._diverged or self._has_score())

  def _has_score(self) -> bool:
    return any(episodes for _, episodes, _ in self._window)

  def _next_report(
    self, learner: TunedState, counts: Mapping[str, int]
  ) -> Callable[[], futures.Future]:
    """Returns the call that makes the next report, or makes one that is undecided newer."""
    self._number += self._ask is None
    self._unreported = 0
    # With the digits that a float32 has.
    values = {n: float(str(value[()])) for n, value in jax.device_get(learner.values).items()}
    score: float | None = None
    state = None
    if not self._diverged:
      _, episodes, returns = map(sum, zip(*self._window, strict=True))
      score = float(returns / episodes)
    if score is not None and math.isfinite(score):
      state = serialisation.to_data(learner)
    else:
      score = None
    self._score = math.nan if score is None else score
    self._diverged = False
    report = self._place.leaderboard.futures.report
    identity = self._place.number, self._incarnation, self._number
    return functools.partial(report, *identity, dict(counts), score, values, state)

  def _post(self) -> None:
    assert self._ask is not None
    self._retry_at, self._undecided = time.monotonic() + _RETRY_SECONDS, False
    self._reply = self._ask()

  def _replied(self) -> bool:
    """Returns whether the reply is there; sends the report again if that is due."""
    assert self._reply is not None
    if not self._reply.done():
      return False
    error = self._reply.exception()
    if error is None:
      self._undecided = self._reply.result() is None
      return not self._undecided
    if not isinstance(error, Exception) or not rpc.is_transient(error):
      raise error
    if time.monotonic() >= self._retry_at:
      logging.warning('reporting a score again: %s', error)
      self._post()
    return False

  def _followed(
    self,
    learner: TunedState,
    event: int,
    source: int | None,
    values: Mapping[str, float],
    state: Any,
  ) -> TunedState | None:
    """Returns the learner state that a reply of the leaderboard asks for; None for `learner`."""
    own = jax.device_get(learner)
    if state is None:
      if all(own.values[name] == np.float32(values[name]) for name in own.values):
        return None
      copied = own
    else:
      copied = serialisation.from_data(state, own)
      if source is not None:
        self._copies += 1
        logging.info('event %d: continuing as member %d has, with %s', event, source, values)
    # The next score is that of what it continues with.
    self._window.clear()
    self._unreported = 0
    return inherited(own, copied, values)
