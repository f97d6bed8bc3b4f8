"""Warnings that may come very often, and are logged sparingly."""

from __future__ import annotations

import logging
import math
import time

_SECONDS = 60.0
_KINDS = 1000  # That are remembered.


class SparingLog:
  """Logs a warning of one kind at most once a minute, in any of several threads."""

  def __init__(self, log: logging.Logger):
    """Initialises a log that writes to another one."""
    self._log = log
    self._logged: dict[object, float] = {}  # When, by kind.

  def warn(self, kind: object, text: str) -> None:
    """Logs a text, unless one of this kind has been logged within the last minute."""
    now = time.monotonic()
    if now - self._logged.get(kind, -math.inf) >= _SECONDS:
      if len(self._logged) >= _KINDS:
        self._logged.clear()
      self._logged[kind] = now
      self._log.warning('%s', text)
