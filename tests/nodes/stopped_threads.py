"""Stops single threads of a child process, which a signal cannot do: it stops all of them."""

import contextlib
import ctypes
import os

_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long] * 4
_libc.ptrace.restype = ctypes.c_long


def _ptrace(request, thread):
  if _libc.ptrace(request, thread, 0, 0):
    error = ctypes.get_errno()
    raise OSError(error, os.strerror(error))


@contextlib.contextmanager
def stopped_threads(pid, running):
  """Stops all threads of a child process except `running`, which are native ids."""
  stopped = [
    int(thread) for thread in os.listdir(f'/proc/{pid}/task') if int(thread) not in running
  ]
  try:
    for thread in stopped:
      _ptrace(_SEIZE, thread)
      _ptrace(_INTERRUPT, thread)
    yield
  finally:
    for thread in stopped:
      with contextlib.suppress(OSError):  # Not seized, or ended.
        _ptrace(_DETACH, thread)
