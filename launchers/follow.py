"""Polls the monitor of a running program for its status."""

from __future__ import annotations

import threading
from typing import Any

import launchpad as lp

from launchers.program import declared
from rundir.roles import MONITOR

_PERIOD_SECONDS = 0.5


class Follower:
  """Polls the monitor twice a second from a thread, until closed.

  Attributes:
    status: the latest status; None before the first, and for a program without our monitor.
    has_monitor: whether the program has our monitor, which a group declares by its role.
  """

  def __init__(self, program: lp.Program):
    """Initialises a follower; call `start` once the program's addresses are bound."""
    monitors = [label for label, said in declared(program).items() if MONITOR in said.roles]
    self._handle = program.groups[monitors[0]][0].create_handle() if monitors else None
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
