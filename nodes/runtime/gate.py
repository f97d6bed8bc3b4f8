"""Blocks a node's RPC handlers until the node can reply or has failed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from nodes.runtime import rpc

# Less than any `call_timeout`, so that a call whose caller has given up holds no thread of the server.
_WAIT_SECONDS = 20.0


class ReadyGate:
  """Blocks RPC handlers until the node opens it, once it can reply."""

  def __init__(self) -> None:
    self._opened = threading.Event()
    self._failed = False

  def open(self) -> None:
    """Opens the gate."""
    self._opened.set()

  def wait(self) -> None:
    """Waits until the gate is open.

    Raises:
      RuntimeError: `rpc.retry_later_error()`, if it does not open for a while; callers retry.
    """
    if not self._opened.wait(_WAIT_SECONDS):
      raise rpc.retry_later_error()

  def check(self) -> None:
    """Raises if the node has failed. Call it before any reply that means the end of training.

    Raises:
      RuntimeError: `rpc.retry_later_error()`, if the node has failed; callers retry.
    """
    if self._failed:
      raise rpc.retry_later_error()

  @contextlib.contextmanager
  def release_on_exit(self, stop: threading.Event) -> Iterator[None]:
    """Opens the gate when the node's work ends.

    After a failure, `check` raises in the handlers that waited.

    Args:
      stop: set when the program stops; a later exception does not count as a failure.
    """
    try:
      yield
    except BaseException:
      self._failed = not stop.is_set()
      raise
    finally:
      self.open()
