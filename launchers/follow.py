"""Polls the monitor of a running program for its status."""

from __future__ import annotations

import threading
from typing import Any

import launchpad as lp

_MONITOR = 'monitor'
_PERIOD_SECONDS = 0.5


class Follower:
  """Polls the monitor twice a second from a thread, until closed.

  `status` stays None for a program without a group 'monitor'.
  """

  def __init__(self, program: lp.Program):
    """Initialises a follower; call `start` once the program's addresses are bound."""
    self._handle = (
      program.groups[_MONITOR][0].create_handle() if _MONITOR in program.groups else None
    )
    self._client: Any = None
    self._closed = threading.Event()
    self._thread = threading.Thread(target=self._follow, name='follower', daemon=True)
    self.status: dict[str, Any] | None = None

  def start(self) -> None:
    """Starts polling."""
    if self._handle is not None:
      self._handle.set_client_kwargs(call_timeout=2)
      self._thread.start()

  def close(self) -> None:
    """Stops polling."""
    self._closed.set()
    if self._thread.ident is not None:
      self._thread.join(timeout=5)

  def _follow(self) -> None:
    assert self._handle is not None
    # Never released: Courier aborts if a pending reply holds the last reference to its client.
    self._client = self._handle.dereference()
    while not self._closed.wait(_PERIOD_SECONDS):
      try:
        self.status = self._client.futures.status().result(timeout=2)
      except Exception:
        continue  # The monitor has not started yet, or is restarting.
