"""The worker of evolution strategies: plays episodes with perturbed policies."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from nodes.evolution.dispatch import Played
from nodes.evolution.episodes import Episodes
from nodes.runtime import activity, lifecycle, rpc
from nodes.runtime.gate import ReadyGate
from nodes.runtime.reporter import Reporter
from nodes.runtime.time_share import TimeShare


class EvolutionWorker:
  """Evaluates the policies of the pairs whose seeds it is sent. It has no state of its own."""

  def __init__(self, make_episodes: Callable[[], Episodes], monitor: Any, name: str):
    """Initialises a worker; the work starts in `run`.

    Args:
      make_episodes: makes what plays.
      monitor: Courier client of the monitor.
      name: of the node, such as 'worker/3'.
    """
    self._make_episodes, self._name = make_episodes, name
    self._gate, self._lock = ReadyGate(), threading.Lock()
    self._episodes: Episodes | None = None
    self._stop = threading.Event()
    self._error: Exception | None = None
    self._stepping = TimeShare()
    self._parts = 0
    self._reporter = Reporter(monitor, name, self._measure, period=2.0)

  def evaluate(self, vector: np.ndarray, seeds: np.ndarray) -> Played:
    """Returns the returns, float32 `[P, 2]`, and lengths, int32 `[P, 2]`, of the episodes of P pairs.

    After them come statistics of the observations, float32 `[S]`. An RPC. It is idempotent: the result
    depends on the arguments alone.

    Args:
      vector: the parameters that are perturbed, float32 `[D]`.
      seeds: of the pairs, uint32 `[P, K]`.

    Raises:
      RuntimeError: `rpc.retry_later_error()`, if the node fails or stops.
    """
    self._gate.wait()
    self._gate.check()
    with self._lock:
      if self._episodes is None or self._stop.is_set() or self._error is not None:
        raise rpc.retry_later_error()
      try:
        with self._stepping.counted():
          returns, lengths, seen = self._episodes.play(vector, seeds, self._stop.is_set)
        for what, values in (('returned', returns), ('had', seen)):
          if not np.isfinite(values).all():
            raise ValueError(f'an episode of {self._name} {what} a value that is not finite')
        return returns, lengths, seen
      except lifecycle.Stopped:
        raise rpc.retry_later_error() from None
      except Exception as error:
        self._error = error  # Ends this node, whose log has it; another worker repeats the part.
        raise rpc.retry_later_error() from error
      finally:
        self._parts += 1
        activity.mark(activity.IDLE)

  def run(self) -> None:
    """Replies to calls until the program stops."""
    activity.mark(activity.STARTING)
    self._stop = stop = lifecycle.stop_event()
    with self._gate.release_on_exit(stop), self._reporter:
      self._episodes = self._make_episodes()
      activity.mark(activity.IDLE)
      self._gate.open()
      while not stop.wait(0.2):
        if self._error is not None:
          raise self._error
        self._reporter.maybe_report()

  def _measure(self, seconds: float) -> dict[str, float]:
    share = self._stepping.measure(seconds)
    return {
      'stepping_share': share,
      'waiting_share': 1.0 - share,
      'parts': float(self._parts),
    }
