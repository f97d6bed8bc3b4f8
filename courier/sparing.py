"""Warnings that may come very often, and are logged sparingly."""

from __future__ import annotations

import logging
import time

_SECONDS = 60.0


class SparingLog:
  """Logs a warning of one kind at most once a minute."""

  def __init__(self, log: logging.Logger):
    """Initialises a log that writes to another one."""
    self._log = log
    self._logged: dict[object, float] = {}  # When, by kind; the earliest first.

  def warn(self, kind: object, text: str) -> None:
    """Logs a text, unless one of this kind has been logged within the last minute."""
    now = time.monotonic()
    while self._logged and next(iter(self._logged.values())) < now - _SECONDS:
      del self._logged[next(iter(self._logged))]
    if kind not in self._logged:
      self._logged[kind] = now
      self._log.warning('%s', text)
