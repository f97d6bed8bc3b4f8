"""The launcher's side of the fork server, which starts the nodes of a local run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Any

from courier import tls
from environments import entry
from launchers import binding, certificate
from launchers.local import compile_cache, fork_server
from launchers.placement import Resources, environment_variables
from nodes.runtime.lifecycle import RESTART_COUNT_VARIABLE, RUN_VARIABLE

# Variables that are not read before a node runs, so that a fork may have others than its server.
_READ_LATE = frozenset({'NPROC', 'PYTHONPATH', tls.VARIABLE, RESTART_COUNT_VARIABLE, RUN_VARIABLE})
# The command lines of nodes take the place of the server's in memory, which therefore has to be long.
_ROOM = 4096


class Fork:
  """A process that the fork server has started, with the methods of `subprocess.Popen` that nodes need.

  Attributes:
    pid: its process id.
  """

  def __init__(self, pid: int, channel: _Channel):
    self.pid = pid
    self._channel = channel

  def poll(self) -> int | None:
    """Returns None while it runs, then its exit code; -N if signal N killed it."""
    return self._channel.exit_code(self.pid)

  def wait(self) -> int:
    """Waits for it to end; returns its exit code."""
    return self._channel.wait_for_exit(self.pid)


class ForkServer:
  """The fork server of a run. Its nodes die with it, and it dies with the thread that starts it.

  Attributes:
    obstacle: why its nodes have no network namespace of their own; '' if they have, or are not to.
  """

  def __init__(self, isolate: bool, pem: IO[bytes]):
    """Starts the server.

    Args:
      isolate: whether to enter a network namespace.
      pem: of `certificate.in_memory`, for the nodes.
    """
    self._isolate = isolate
    self._pem = pem
    self._begin()

  def _begin(self) -> None:
    self._variables = {
      **os.environ,
      **compile_cache.variables(os.environ),
      **environment_variables(Resources()),
      'PYTHONPATH': binding.python_path(),
      'PYTHONUNBUFFERED': '1',
    }
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
    self.obstacle = str(self._plain.receive()['obstacle'])

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
      OSError: the server has ended meanwhile.
    """
    if not self._plain.is_open():
      self.close()
      self._begin()
    environment = {**environment, **self._certificate}
    changed = {k: v for k, v in environment.items() if self._variables.get(k) != v}
    removed = [k for k in self._variables if k not in environment]
    ours = command[0] == sys.executable and 'PYTHONPATH' in environment
    request = {
      'command': command,
      'variables': changed,
      'removed': removed,
      'mark': mark,
      'cwd': cwd,
      'fork': ours and not removed and changed.keys() <= _READ_LATE,
    }
    needs_jax = any(module in fork_server.JAX_NODES for module in modules)
    channel = self._jax if needs_jax and self._jax.is_open() else self._plain
    return Fork(channel.request(request, descriptors), channel)

  def close(self) -> None:
    """Ends the server, and with it every node that is left."""
    self._plain.close()
    self._jax.close()
    self._process.kill()
    self._process.wait()


class _Channel:
  """A connection to a process that forks; it may be used by several threads."""

  def __init__(self, connection: socket.socket):
    self._socket = connection
    self._codes: dict[int, int] = {}
    self._lock = threading.Lock()
    self._open = True

  def is_open(self) -> bool:
    with self._lock:
      self._receive_ends(block=False)
      return self._open

  def request(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> int:
    """Sends a request; returns the id of the process that it has started."""
    with self._lock:
      socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
      while self._open:
        reply = self._next()
        if 'pid' in reply:
          return int(reply['pid'])
        self._note(reply)
    raise ConnectionError('the process that starts the nodes has ended')

  def receive(self) -> dict[str, Any]:
    """Waits for a message that is no reply."""
    with self._lock:
      return self._next() or {'obstacle': 'the process that starts the nodes has ended'}

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
    try:
      message = self._socket.recv(fork_server.MESSAGE_BYTES, flags)
    except ConnectionError:
      message = b''
    if not message:
      self._open = False
    return json.loads(message) if message else {}

  def _note(self, message: Mapping[str, Any]) -> None:
    if 'ended' in message:
      self._codes[message['ended']] = message['code']
