"""Moves this process into its own network namespace, which has only a loopback interface.

Only processes that start there can reach its ports. A socket of another namespace stays in that one.

Only a process without threads may enter a user namespace.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct

_CLONE_NEWUTS = 0x04000000
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1


def enter(user: int | None = None) -> None:
  """Enters a new network namespace; if not permitted, inside a user namespace.

  Args:
    user: number that this user gets in the user namespace; None for the same. With 0, the files and
      processes of other users cannot look like those of this user, whose own number may be the one
      that Linux gives to all who have none there.

  Raises:
    OSError: if the system refuses. This process may then be in a namespace without network.
  """
  try:
    _unshare(_CLONE_NEWNET)
    _start_loopback()
  except PermissionError:
    outer, group = os.geteuid(), os.getegid()
    inner = outer if user is None else user
    _unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
    for file, text in (
      ('setgroups', 'deny'),
      ('uid_map', f'{inner} {outer} 1'),
      ('gid_map', f'{group} {group} 1'),
    ):
      with open(f'/proc/self/{file}', 'w') as f:
        f.write(text)
    _start_loopback()


def enter_if_allowed(user: int | None = None) -> str:
  """Enters a new network namespace as `enter` does, or returns why the system refuses; else ''."""
  why = refusal()
  if not why:
    enter(user)
  return why


def refusal() -> str:
  """Tries to enter one in a fork of this process; returns why the system refuses, or ''."""
  reader, writer = os.pipe()
  child = os.fork()
  if not child:
    try:
      enter()
    except OSError as error:
      os.write(writer, _explained(error).encode())
    os._exit(0)
  os.close(writer)
  os.waitpid(child, 0)
  with open(reader) as f:
    return f.read()


def _unshare(flags: int) -> None:
  libc = ctypes.CDLL(None, use_errno=True)
  if libc.unshare(flags):
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))


def _start_loopback() -> None:
  with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    fcntl.ioctl(s, _SIOCSIFFLAGS, struct.pack('16sH22x', b'lo', _IFF_UP))


def set_resolvable_host_name() -> None:
  """Sets the host name to 127.0.0.1 if the current one has no address inside the namespace.

  JAX's CPU collectives listen at the address of the host name. This name resolves without an entry in
  any file.
  """
  try:
    with socket.socket() as s:
      s.bind((socket.gethostname(), 0))
  except OSError:
    _unshare(_CLONE_NEWUTS)
    socket.sethostname('127.0.0.1')


def _explained(error: OSError) -> str:
  limit = error.errno == errno.ENOSPC
  return 'a limit in /proc/sys/user is reached' if limit else str(error.strerror)
