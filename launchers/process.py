"""What a machine does for a node that runs on it: find free ports, start and signal its process.

Needs nothing but the standard library: `launchers.ray_cluster` sends it to machines by value.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from typing import IO


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
  # The same is in nodes.listening, which launchers do not import.
  if not socket.has_dualstack_ipv6():
    return socket.socket(socket.AF_INET)
  both = socket.socket(socket.AF_INET6)
  both.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
  return both


def start(
  python: str, payload: str, environment: Mapping[str, str], log: IO[bytes], cwd: str | None = None
) -> subprocess.Popen:
  """Starts the process of a node, which dies with the thread that calls this.

  Args:
    python: the interpreter.
    payload: the file that holds the node's function.
    environment: all of its variables; PYTHONPATH must lead to `launchers`.
    log: a file that gets its output.
    cwd: its working directory; None for that of the caller.
  """
  return subprocess.Popen(
    [python, '-m', 'launchers.node_entry', payload],
    env={**environment, 'PYTHONUNBUFFERED': '1', 'LAUNCHPOD_LAUNCHER_PID': str(os.getpid())},
    stdin=subprocess.DEVNULL,
    stdout=log,
    stderr=subprocess.STDOUT,
    cwd=cwd,
    start_new_session=True,  # Ctrl-C in the terminal reaches the launcher only.
  )


def send(process: subprocess.Popen, number: int | signal.Signals) -> None:
  """Signals a process of `start`, if it still runs, and whatever it has started."""
  if process.poll() is None:
    with contextlib.suppress(ProcessLookupError):
      os.killpg(process.pid, number)
