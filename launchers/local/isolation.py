"""Runs a local run in its own network namespace, so that no other process can connect to its nodes.

Nodes refuse processes without the certificate of the run: see `launchers.certificate`. Other servers of
a run ask for none: JAX's coordinator and collectives, and those that environments start. A Linux network
namespace with only a loopback interface can be reached only by the processes of the run.

Only a process without threads may enter a user namespace, and launch.py has threads once it has parsed
its flags. So it executes this script, which enters the namespace and executes launch.py again. It stays
one process, with the same id, terminal, working directory and parent.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # The script uses only the standard library.
  from launchers.placement import Resources

MODES = ('auto', 'require', 'no')
_VARIABLE = 'LAUNCHPOD_ISOLATED'  # Name of the namespace of this run.
_SCRIPT = os.path.abspath(__file__)
_CLONE_NEWUTS = 0x04000000
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1


def enter(mode: str, placement: Mapping[str, Resources]) -> None:
  """Moves this process into its own network namespace; returns inside it, or if no move is made.

  To move, the process executes its command again, so call this before writing or starting anything.
  If mode is 'auto', the process cannot move and a server lets strangers in, it prints a one-line warning
  to stderr.

  Args:
    mode: 'auto' moves if the system allows it and no node needs the network to find its devices;
      'require' always moves; 'no' never does.
    placement: resources of each group.

  Raises:
    ValueError: if mode is 'require' and the system does not allow it.
  """
  if mode == 'no' or os.environ.get(_VARIABLE) == _namespace():
    return
  stays = mode == 'auto' and any(r.accelerator_kind == 'tpu' for r in placement.values())
  obstacle = "a TPU's library asks the network about its machine" if stays else _obstacle()
  if not obstacle:
    sys.stdout.flush()
    command = [sys.executable, *sys.orig_argv[1:]]
    os.execv(sys.executable, [sys.executable, '-I', _SCRIPT, *command])
  if mode == 'require':
    raise ValueError(
      f'--isolate=require is not possible: {obstacle}; allow it, or set --isolate=no, with which nodes '
      'still refuse processes without the certificate of the run (see SECURITY.md).'
    )
  from launchers import streams  # Not available to the script.

  if exposed := _exposed(placement, namespaces=stays):
    streams.say(
      f'warning: the nodes are not isolated, because {obstacle}: {" and ".join(exposed)}; see '
      'SECURITY.md (--isolate=no: no warning).',
      sys.stderr,
    )


def _exposed(placement: Mapping[str, Resources], namespaces: bool) -> list[str]:
  """Returns which servers of a run outside a namespace let strangers in, in words.

  Args:
    placement: resources of each group.
    namespaces: whether Reverb has a namespace of its own.
  """
  found = [] if namespaces else ['other users of this machine can connect to Reverb']
  if any(resources.one_job for resources in placement.values()):
    found.append(
      "any process that can reach ports 1024-65535 of this machine can connect to JAX's coordinator and "
      'collectives, so close them with a firewall'
    )
  return found


def _namespace() -> str:
  try:
    return os.readlink('/proc/self/ns/net')
  except OSError:  # A kernel without namespaces.
    return ''


def _obstacle() -> str:
  """Tries to enter a namespace in another process; returns the obstacle, or ''."""
  tried = subprocess.run([sys.executable, '-I', _SCRIPT], capture_output=True, text=True)
  if tried.returncode == 0:
    return ''
  why = tried.stderr.strip() or f'exit code {tried.returncode}'
  return f'this system refuses a network namespace ({why})'


def _unshare(flags: int) -> None:
  libc = ctypes.CDLL(None, use_errno=True)
  if libc.unshare(flags):
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))


def _start_loopback() -> None:
  with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    fcntl.ioctl(s, _SIOCSIFFLAGS, struct.pack('16sH22x', b'lo', _IFF_UP))


def _set_resolvable_host_name() -> None:
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


def _enter_namespace() -> None:
  """Enters a new network namespace; if not permitted, inside a user namespace of the same user."""
  try:
    _unshare(_CLONE_NEWNET)
    _start_loopback()
  except PermissionError:
    user, group = os.geteuid(), os.getegid()
    _unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
    for file, text in (
      ('setgroups', 'deny'),
      ('uid_map', f'{user} {user} 1'),
      ('gid_map', f'{group} {group} 1'),
    ):
      with open(f'/proc/self/{file}', 'w') as f:
        f.write(text)
    _start_loopback()
  _set_resolvable_host_name()


def _main(command: list[str]) -> None:
  """Enters a network namespace and executes `command`, unless it is empty."""
  try:
    _enter_namespace()
  except OSError as error:
    limit = error.errno == errno.ENOSPC
    sys.exit('a limit in /proc/sys/user is reached' if limit else error.strerror)
  if command:
    os.environ[_VARIABLE] = _namespace()
    os.execv(command[0], command)


if __name__ == '__main__':
  _main(sys.argv[1:])
