"""RPCs with a deadline and retries, for servers that may restart."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

from absl import logging

from nodes.runtime import lifecycle

POLL_SECONDS = 0.5
_MAX_BACKOFF_SECONDS = 5.0
_RETRY_LATER = 'the server cannot reply now; retry'
# Of the system: every actor's environment may have seeded `random` alike.
_chance = random.SystemRandom()


def retry_later_error() -> Exception:
  """Returns the exception by which a handler makes its caller retry, maybe with the next incarnation."""
  return RuntimeError(_RETRY_LATER)


def backoff() -> Iterator[float]:
  """Yields the pauses before retries, in seconds: up to 0.1, doubled each time, up to 5.

  Each is shortened by chance, by half at most, since thousands of clients lose a server at one time and
  would return to it at one time.
  """
  pause = 0.1
  while True:
    yield pause * _chance.uniform(0.5, 1.0)
    pause = min(2 * pause, _MAX_BACKOFF_SECONDS)


def call(ask: Callable[[], futures.Future], should_stop: Callable[[], bool], what: str) -> Any:
  """Makes an idempotent call and waits for the reply.

  The deadline of a call is its client's `call_timeout`. A call that exceeds it, or whose server is
  unavailable, is retried with exponential back-off until the program stops.

  Args:
    ask: makes the call.
    should_stop: polled twice a second.
    what: names the call in the log.

  Raises:
    lifecycle.Stopped: once `should_stop` returns True.
    Exception: any other exception that the server raised.
  """
  future, pauses = ask(), backoff()
  while True:
    try:
      return future.result(timeout=POLL_SECONDS)
    except futures.TimeoutError:
      if should_stop():
        raise lifecycle.Stopped from None
    except Exception as error:
      if should_stop():
        raise lifecycle.Stopped from None
      if not is_transient(error):
        raise
      logging.warning('retrying %s: %s', what, error)
      time.sleep(next(pauses))
      future = ask()


def is_transient(error: BaseException) -> bool:
  """Returns whether to retry: the deadline passed, or the server is or will be unavailable."""
  code = str(getattr(error, 'code', ''))
  return 'DEADLINE_EXCEEDED' in code or 'UNAVAILABLE' in code or _RETRY_LATER in str(error)
