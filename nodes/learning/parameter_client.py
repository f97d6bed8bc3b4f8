"""Keeps the parameters of an actor up to date; the idea of Acme's class of that name."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from agents.types import Nest
from nodes.runtime import lifecycle, rpc
from nodes.runtime.counters import ActingTotals


class ParameterClient:
  """Asks the learner for newer parameters every `period` seconds, from a thread of its own.

  Meanwhile the actor acts with those it has. A learner that is away is asked again.
  """

  def __init__(
    self,
    learner: Any,
    actor_id: str,
    incarnation: int,
    period: float,
    totals: Callable[[], ActingTotals],
    set_params: Callable[[int, Nest], None],
  ):
    """Initialises a client.

    Args:
      learner: Courier client of `nodes.learner.LearnerNode`.
      actor_id: of this actor.
      incarnation: the identity of this life of it.
      period: seconds from an answer to the next question.
      totals: returns what the actor has done in this life.
      set_params: takes (policy_version, params).
    """
    self._learner = learner
    self._identity = (lifecycle.run_token(), actor_id, incarnation)
    self._period = period
    self._totals = totals
    self._set_params = set_params
    self._held: tuple[int, int] | None = None
    self._closed = threading.Event()
    self._thread: threading.Thread | None = None
    self._error: BaseException | None = None

  def fetch(self, should_stop: Callable[[], bool]) -> bool:
    """Asks once, and takes the parameters if they are others; returns whether training goes on.

    Args:
      should_stop: polled while the answer is awaited.

    Raises:
      lifecycle.Stopped: when `should_stop` says so.
    """

    def ask() -> Any:
      return self._learner.futures.fetch(self._held, *self._identity, tuple(self._totals()))

    finished, held, params = rpc.call(ask, should_stop, 'fetch')
    if params is not None:
      self._set_params(held[1], params)
      self._held = tuple(held)
    return not finished

  def start(self, check: Callable[[], None], end: Callable[[], None]) -> None:
    """Begins to ask.

    Args:
      check: called before each question; what it raises is a failure of this thread.
      end: called when training has finished, or this thread has failed.
    """
    self._thread = threading.Thread(
      target=self._run, args=(check, end), name='variable-client', daemon=True
    )
    self._thread.start()

  def close(self) -> None:
    """Stops to ask, and raises what the thread has failed with, if it has."""
    self._closed.set()
    if self._thread is not None:
      self._thread.join(timeout=10.0)
    if self._error is not None:
      raise self._error

  def _run(self, check: Callable[[], None], end: Callable[[], None]) -> None:
    try:
      while not self._closed.wait(self._period):
        check()
        if not self.fetch(self._closed.is_set):
          break
    except lifecycle.Stopped:
      pass
    except BaseException as error:
      self._error = error
    finally:
      end()
