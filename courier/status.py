"""The errors of calls, with the codes of gRPC."""

from __future__ import annotations

import enum
import importlib.util
import sys
import traceback


class StatusCode(enum.Enum):
  """Why a call failed."""

  OK = 0
  CANCELLED = 1
  UNKNOWN = 2
  INVALID_ARGUMENT = 3
  DEADLINE_EXCEEDED = 4
  NOT_FOUND = 5
  ALREADY_EXISTS = 6
  PERMISSION_DENIED = 7
  RESOURCE_EXHAUSTED = 8
  FAILED_PRECONDITION = 9
  ABORTED = 10
  OUT_OF_RANGE = 11
  UNIMPLEMENTED = 12
  INTERNAL = 13
  UNAVAILABLE = 14
  DATA_LOSS = 15
  UNAUTHENTICATED = 16


class StatusNotOk(Exception):
  """A call has failed, on the server or on the way.

  Attributes:
    code: a `StatusCode`.
  """

  def __init__(self, message: str = '', code: StatusCode = StatusCode.UNKNOWN):
    super().__init__(message)
    self.code = code


# Subclasses come before their bases.
_CODES = (
  (NotImplementedError, StatusCode.UNIMPLEMENTED),
  ((ValueError, TypeError), StatusCode.INVALID_ARGUMENT),
  (StopIteration, StatusCode.OUT_OF_RANGE),
  (MemoryError, StatusCode.RESOURCE_EXHAUSTED),
  (KeyboardInterrupt, StatusCode.ABORTED),
  ((SystemError, SyntaxError), StatusCode.INTERNAL),
  (LookupError, StatusCode.NOT_FOUND),
)


def of_handler(error: BaseException) -> StatusNotOk:
  """Returns what the client raises for an exception of a handler: its traceback, and a code."""
  code = next((code for kinds, code in _CODES if isinstance(error, kinds)), StatusCode.UNKNOWN)
  frames = error.__traceback__ and error.__traceback__.tb_next  # Without the server's own.
  text = ''.join(traceback.format_exception(type(error), error, frames))
  return StatusNotOk(f'Python exception was raised on the server:\n{text}', code)


# Programs catch `pybind11_abseil.status.StatusNotOk`, which C++ Courier brings along.
if importlib.util.find_spec('pybind11_abseil') is None:
  sys.modules.setdefault('pybind11_abseil.status', sys.modules[__name__])
