"""What a machine does for a node that runs on it: find free ports, start and signal its process.

Needs nothing but the standard library: `launchers.ray.machines` sends it to machines by value.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping
from typing import IO

from launchers import guard, heartbeat

# What `NodeProcess.exit_code` makes of code 0 where the node's work had not returned.
LEFT = 250


def bind_ports(count: int) -> list[socket.socket]:
  """Returns sockets that hold ports which nothing else on this machine has.

  They do not listen. A node can have the port once its socket is closed.
  """
  sockets = [unbound_socket() for _ in range(count)]
  for s in sockets:
    s.bind(('', 0))
  return sockets


def unbound_socket() -> socket.socket:
  """Returns a TCP socket that a port of IPv6 and IPv4 can be bound to, or of IPv4 alone.

  A kernel without IPv6 makes the latter.
  """
  # The same is in nodes.runtime.listening, which launchers do not import.
  if not socket.has_dualstack_ipv6():
    return socket.socket(socket.AF_INET)
  both = socket.socket(socket.AF_INET6)
  both.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
  return both


class NodeProcess:
  """One life of a node. Dies with the thread that starts it.

  What the node has started ends with it: the rest of its process group, and whatever has inherited its
  environment variables.

  Attributes:
    pid: of the process, which leads its process group.
  """

  def __init__(
    self,
    python: str,
    payload: str,
    environment: Mapping[str, str],
    log: IO[bytes],
    mark: str,
    cwd: str | None = None,
  ):
    """Starts the process.

    Args:
      python: the interpreter.
      payload: the file that holds the node's function.
      environment: all of its variables; PYTHONPATH must lead to `launchers`.
      log: a file that gets its output.
      mark: begins with that of a `guard.Guard`; no other process's mark begins with it.
      cwd: its working directory; None for that of the caller.
    """
    self._mark = mark
    self._ended = False
    self._ending = threading.Lock()
    beats, beat_here = os.pipe()
    try:
      self._popen = subprocess.Popen(
        [python, '-m', 'launchers.node_entry', payload],
        env={
          **environment,
          'PYTHONUNBUFFERED': '1',
          'LAUNCHPOD_LAUNCHER_PID': str(os.getpid()),
          guard.VARIABLE: mark,
          heartbeat.VARIABLE: str(beat_here),
        },
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        cwd=cwd,
        pass_fds=[beat_here],
        start_new_session=True,  # Ctrl-C in the terminal reaches the launcher only.
      )
    except BaseException:
      os.close(beats)
      raise
    finally:
      os.close(beat_here)
    self._beats = beats
    self.pid = self._popen.pid
    self._listener = heartbeat.Listener(heartbeat.pipe_reader(beats))

  def exit_code(self) -> int | None:
    """Returns None while it runs; LEFT if it has left with code 0 before its work returned."""
    code = self._popen.poll()
    if code is None:
      return None
    with self._ending:
      if not self._ended:
        self._end()
    beat = self._listener.beat
    return LEFT if code == 0 and not (beat and beat.returned) else code

  def _end(self) -> None:
    """Ends what the node has left behind."""
    with contextlib.suppress(OSError):  # The group lasts as long as a process is in it.
      os.killpg(self.pid, signal.SIGKILL)
    guard.sweep(self._mark)
    self._listener.poll()
    os.close(self._beats)
    self._ended = True

  def beat(self) -> tuple[heartbeat.Beat | None, float]:
    """Returns the latest heartbeat, None before the first, and how many seconds ago it came."""
    with self._ending:
      if not self._ended:
        self._listener.poll()
    return self._listener.beat, self._listener.age()

  def wait(self) -> None:
    """Waits for its end."""
    self._popen.wait()

  def send(self, number: int | signal.Signals) -> None:
    """Signals the process, if it still runs, and its group."""
    if self._popen.poll() is None:
      with contextlib.suppress(ProcessLookupError):
        os.killpg(self.pid, number)
