"""Polls the monitor of a running program for its status."""

from __future__ import annotations

import threading
from typing import Any

import launchpad as lp

from launchers.graph import describe

_MONITOR = 'monitor'
_PERIOD_SECONDS = 0.5


class Follower:
  """Polls the monitor twice a second from a thread, until closed.

  Attributes:
    status: the latest status; None before the first, and for a program without our monitor.
    has_monitor: whether the program has our monitor, in a group 'monitor'.
  """

  def __init__(self, program: lp.Program):
    """Initialises a follower; call `start` once the program's addresses are bound."""
    found = [node for node in program.groups.get(_MONITOR, ()) if describe.is_ours(node)]
    self._handle = found[0].create_handle() if found else None
    self.has_monitor = self._handle is not None
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
    client = self._handle.dereference()
    while not self._closed.wait(_PERIOD_SECONDS):
      try:
        self.status = client.status()
      except Exception:
        continue  # The monitor has not started yet, or is restarting.
