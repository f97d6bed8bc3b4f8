"""Holds back a node's handlers until the node can answer, and knows why if it never will."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from nodes.runtime import rpc


class ReadyGate:
  """Handlers wait before it; the node opens it once there is something to answer with."""

  def __init__(self) -> None:
    self._opened = threading.Event()
    self._failed = False

  def open(self) -> None:
    """Opens the gate."""
    self._opened.set()

  def wait(self) -> None:
    """Waits until it is open."""
    self._opened.wait()

  def check(self) -> None:
    """Call it before an answer that says that there is nothing more to do.

    Raises:
      RuntimeError: `rpc.retry_later_error()`, if the node has failed; callers retry.
    """
    if self._failed:
      raise rpc.retry_later_error()

  @contextlib.contextmanager
  def release_on_exit(
    self, stop: threading.Event, close: Callable[[], None] = lambda: None
  ) -> Iterator[None]:
    """Opens the gate when the node's work ends, and then calls `close`.

    After a failure, `check` raises in the calls that waited.

    Args:
      stop: an exception after it is set is no failure, the program stops.
      close: stops to serve.
    """
    try:
      yield
    except BaseException:
      self._failed = not stop.is_set()
      raise
    finally:
      self.open()
      close()
