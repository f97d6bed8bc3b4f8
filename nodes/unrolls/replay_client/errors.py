"""Errors of replay servers."""

from __future__ import annotations

# Codes of gRPC.
CANCELLED = 1
DEADLINE_EXCEEDED = 4
UNAVAILABLE = 14
_AWAY = {CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE}


class ReplayError(Exception):
  """A replay server has rejected a call; the text is the server's."""


class ReplayAwayError(ReplayError):
  """A replay server cannot be reached, stops, or has not replied in time; trying again may help."""


def of_status(code: int, text: str) -> ReplayError:
  """Returns the error for a status of gRPC other than 0."""
  return ReplayAwayError(text) if code in _AWAY else ReplayError(f'{text} (gRPC status {code})')
