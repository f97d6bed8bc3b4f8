"""The launcher's side of the fork server, which starts the nodes of a local run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from environments import entry
from launchers import certificate
from launchers.local import compile_cache, fork_server
from launchers.placement import Resources, environment_variables

# Variables that no import reads, besides our own, so that a fork may have others than its server.
_READ_LATE = frozenset({'NPROC', 'PYTHONPATH', certificate.VARIABLE})
_OURS = 'LAUNCHPOD_'
# The command lines of nodes take the place of the server's in memory, which therefore has to be long.
_ROOM = 4096
_INT = struct.Struct('i')


class Fork:
  """A process that the fork server has started, with the methods of `subprocess.Popen` that nodes need.

  Attributes:
    pid: its process id.
  """

  def __init__(self, pid: int, channel: _Channel):
    self.pid = pid
    self._channel = channel
    self._code: int | None = None

  def poll(self) -> int | None:
    """Returns None while it runs, then its exit code; -N if signal N killed it."""
    if self._code is None:
      self._code = self._channel.exit_code(self.pid)
    return self._code

  def wait(self) -> int:
    """Waits for it to end; returns its exit code."""
    if self._code is None:
      self._code = self._channel.wait_for_exit(self.pid)
    return self._code


class ForkServer:
  """The fork server of a run. Its nodes die with it, and it dies with the thread that starts it."""

  def __init__(self, isolate: bool):
    """Starts the server, and does not wait for its imports.

    Args:
      isolate: whether to enter a network namespace.
    """
    self._isolate = isolate
    self._pem = certificate.in_memory(b'')
    self._begin()

  def _begin(self) -> None:
    self._variables = _variables()
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    theirs = [their for _, their in pairs]
    fds = [their.fileno() for their in theirs]
    command = entry.command(
      sys.executable,
      fork_server.__name__,
      *(str(os.getpid()), str(int(self._isolate)), *map(str, fds)),
    )
    command[command.index('-c') + 1] += ' ' * _ROOM
    self._process = subprocess.Popen(
      command,
      env=self._variables,
      stdin=subprocess.DEVNULL,
      pass_fds=[*fds, self._pem.fileno()],
      start_new_session=True,  # Ctrl-C in the terminal reaches the launcher only.
    )
    for their in theirs:
      their.close()
    # The nodes share a user namespace with the server, in which they cannot open the launcher's files.
    self._certificate = certificate.variable(self._pem, self._process.pid)
    self._plain, self._jax = (_Channel(ours) for ours, _ in pairs)

  @property
  def obstacle(self) -> str:
    """Why its nodes have no network namespace of their own; '' if they have, or are not to."""
    return self._plain.obstacle()

  def fits(self, isolate: bool) -> bool:
    """Returns whether a server that was started now would be like this one."""
    return isolate == self._isolate and not _read_early(_variables(), self._variables)

  def give(self, pem: bytes) -> None:
    """Sets the certificate of the nodes; call it once, before `start`."""
    self._pem.write(pem)
    self._pem.flush()

  def start(
    self,
    command: Sequence[str],
    environment: Mapping[str, str],
    descriptors: tuple[int, int],
    mark: int,
    cwd: str | None,
    modules: Sequence[str] = (),
  ) -> Fork:
    """Starts a node's process, which leads a process group and a session.

    If the server has been killed, and so all nodes, another one starts this node and the later ones.

    Args:
      command: of `entry.command`, for `launchers.node_entry`.
      environment: all of its variables, except for that of the certificate.
      descriptors: of its log and of its heartbeat.
      mark: of a `guard.Guard`.
      cwd: its working directory; None for that of the server.
      modules: the module of its class and those of what the class is given, as far as they are known.

    Raises:
      OSError: the server has ended meanwhile, or the system refuses another process.
    """
    if not self._plain.is_open():
      before = self.obstacle
      self._end()
      self._begin()
      if self.obstacle and not before:
        raise OSError(self.obstacle)
    environment = {**environment, **self._certificate}
    same_imports = not _read_early(environment, self._variables)
    request = {
      'command': command,
      'variables': {k: v for k, v in environment.items() if self._variables.get(k) != v},
      'removed': [k for k in self._variables if k not in environment],
      'mark': mark,
      'cwd': cwd,
      'fork': command[0] == sys.executable and same_imports,
    }
    needs_jax = any(module in fork_server.JAX_NODES for module in modules)
    channel = self._jax if needs_jax and self._jax.is_open() else self._plain
    return Fork(int(channel.request(request, descriptors)['pid']), channel)

  def make_socket(self, family: int) -> socket.socket:
    """Returns a new socket for streams, in the namespace of the nodes.

    Raises:
      OSError: the server has ended, or the system refuses another socket.
    """
    return socket.socket(fileno=self._plain.request({'family': family}, ())['socket'])

  def close(self) -> None:
    """Ends the server, and with it every node that is left."""
    self._end()
    self._pem.close()

  def _end(self) -> None:
    self._plain.close()
    self._jax.close()
    self._process.kill()
    self._process.wait()


_begun: list[ForkServer] = []


def begin(isolate: bool) -> None:
  """Starts a fork server for the next `take`, so that it imports meanwhile."""
  _begun.append(ForkServer(isolate))


def take(isolate: bool) -> ForkServer:
  """Returns the server of `begin` if it fits, else a new one."""
  while _begun:
    server = _begun.pop()
    if server.fits(isolate):
      return server
    server.close()
  return ForkServer(isolate)


def _variables() -> dict[str, str]:
  """Returns the variables of nodes on CPUs, apart from those of a run or a node."""
  return {
    **os.environ,
    **compile_cache.variables(os.environ),
    **environment_variables(Resources()),
    'PYTHONPATH': entry.python_path(),
    'PYTHONUNBUFFERED': '1',
  }


def _read_early(some: Mapping[str, str], others: Mapping[str, str]) -> set[str]:
  """Returns the names of variables that differ and that an import may read."""
  differ = {name for name, _ in some.items() ^ others.items()}
  return {name for name in differ if name not in _READ_LATE and not name.startswith(_OURS)}


class _Channel:
  """A connection to a process that forks; it may be used by several threads."""

  def __init__(self, connection: socket.socket):
    self._socket = connection
    self._codes: dict[int, int] = {}
    self._obstacle: str | None = None
    self._lock = threading.Lock()
    self._open = True

  def is_open(self) -> bool:
    with self._lock:
      self._receive_ends(block=False)
      return self._open

  def request(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
    """Sends a request; returns the reply, which has the id of a process or a descriptor of a socket."""
    with self._lock:
      if self._open:
        socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
      while self._open:
        reply = self._next()
        if 'error' in reply:
          raise OSError(reply['error'])
        if reply.keys() & {'pid', 'socket'}:
          # The code of an earlier process with this id, which the `Fork` of that one has.
          self._codes.pop(reply.get('pid', 0), None)
          return reply
        self._note(reply)
    raise ConnectionError('the process that starts the nodes has ended')

  def obstacle(self) -> str:
    with self._lock:
      while self._obstacle is None and self._open:
        self._note(self._next())
      return 'its process has ended' if self._obstacle is None else self._obstacle

  def exit_code(self, pid: int) -> int | None:
    with self._lock:
      self._receive_ends(block=False)
      return self._code(pid)

  def wait_for_exit(self, pid: int) -> int:
    with self._lock:
      while (code := self._code(pid)) is None:
        self._receive_ends(block=True)
      return code

  def close(self) -> None:
    with self._lock:
      self._open = False
      self._socket.close()

  def _code(self, pid: int) -> int | None:
    # Its nodes die with it.
    return self._codes.get(pid, None if self._open else -signal.SIGKILL)

  def _receive_ends(self, block: bool) -> None:
    flags = 0 if block else socket.MSG_DONTWAIT
    with contextlib.suppress(BlockingIOError):
      while self._open:
        self._note(self._next(flags))
        flags = socket.MSG_DONTWAIT

  def _next(self, flags: int = 0) -> dict[str, Any]:
    """Returns the next message; {} at the end, or if the server has died."""
    # `socket.recv_fds` would ignore the flags.
    try:
      message, ancillary, _, _ = self._socket.recvmsg(
        fork_server.MESSAGE_BYTES, socket.CMSG_SPACE(_INT.size), flags | socket.MSG_CMSG_CLOEXEC
      )
    except ConnectionError:
      message, ancillary = b'', []
    if not message:
      self._open = False
      return {}
    descriptors = [descriptor for *_, data in ancillary for (descriptor,) in _INT.iter_unpack(data)]
    return json.loads(message) | ({'socket': descriptors[0]} if descriptors else {})

  def _note(self, message: Mapping[str, Any]) -> None:
    if 'ended' in message:
      self._codes[message['ended']] = message['code']
    if 'obstacle' in message:
      self._obstacle = message['obstacle']
