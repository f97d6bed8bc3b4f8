"""Calls with a deadline, which are retried while the server may come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

from absl import logging

from nodes.runtime import lifecycle

POLL_SECONDS = 0.5
_MAX_BACKOFF_SECONDS = 5.0
_AWAY = 'the server is about to be away; ask again'


def retry_later_error() -> Exception:
  """Returns what a server raises in its handlers when its next life is to answer instead."""
  return RuntimeError(_AWAY)


def backoff() -> Iterator[float]:
  """Yields the seconds to pause before something is tried again, more each time."""
  pause = 0.1
  while True:
    yield pause
    pause = min(2 * pause, _MAX_BACKOFF_SECONDS)


def call(ask: Callable[[], futures.Future], should_stop: Callable[[], bool], what: str) -> Any:
  """Makes a call that may be repeated, and waits for the answer.

  The deadline of a call is its client's `call_timeout`. A call that is overdue, or whose server is
  away, is made again, at first at once and then with growing pauses, as long as the program runs.

  Args:
    ask: makes the call.
    should_stop: polled twice a second.
    what: the call in words, for the log.

  Raises:
    lifecycle.Stopped: when `should_stop` says so.
    Exception: what the server raised.
  """
  answer, pauses = ask(), backoff()
  while True:
    try:
      return answer.result(timeout=POLL_SECONDS)
    except futures.TimeoutError:
      if should_stop():
        raise lifecycle.Stopped from None
    except Exception as error:
      if should_stop():
        raise lifecycle.Stopped from None
      if not _is_transient(error):
        raise
      logging.warning('asking again, %s: %s', what, error)
      time.sleep(next(pauses))
      answer = ask()


def _is_transient(error: Exception) -> bool:
  """Whether the call may be repeated: it timed out, or the server was or will be away."""
  code = str(getattr(error, 'code', ''))
  return 'DEADLINE_EXCEEDED' in code or 'UNAVAILABLE' in code or _AWAY in str(error)
