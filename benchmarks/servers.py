"""Servers that benchmarks measure against, each in a process like a node's."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

import numpy as np

from environments import entry
from launchers import binding, child_process, guard, pickling, placement
from nodes.inference import codec
from nodes.inference.socket_server import SocketServer
from nodes.unrolls.tables import Table

DEADLINE_SECONDS = 120.0


@contextlib.contextmanager
def running(directory: str, name: str, function: Callable[[int], Any]) -> Iterator[tuple[int, str]]:
  """Calls `function(port)` in a new process, and kills the process at the end of the block.

  Args:
    directory: an existing directory for the payload and the log of the process.
    name: name of the process.
    function: picklable function that serves on a port.

  Yields:
    The id of the process and its address, once it listens.
  """
  port = binding.free_ports(1)[0]
  payload = os.path.join(directory, f'{name}.pkl')
  with open(payload, 'wb') as f:
    f.write(pickling.dumps(name, functools.partial(function, port)))
  os.environ.update(placement.NO_PROXY)
  environment = {**os.environ, 'PYTHONPATH': entry.python_path()}
  with open(os.path.join(directory, f'{name}.log'), 'w+b') as log:
    server = child_process.NodeProcess(
      sys.executable, payload, environment, log, guard.new_marks().start
    )
    try:
      _wait(port, server.exit_code, log)
      yield server.pid, f'127.0.0.1:{port}'
    finally:
      server.send(signal.SIGKILL)
      server.wait()


def _wait(port: int, ended: Callable[[], int | None], log: IO[bytes]) -> None:
  """Waits until the server listens on a port."""
  end = time.monotonic() + DEADLINE_SECONDS
  while True:
    with contextlib.suppress(OSError), socket.create_connection(('127.0.0.1', port), 1.0):
      return
    if ended() is not None or time.monotonic() > end:
      log.seek(0)
      raise RuntimeError(f'a server did not start:\n{log.read().decode()}')
    time.sleep(0.05)


def serve_actions(action: np.ndarray, shared_memory: bool, port: int) -> None:
  """Replies to every request with the same actions until the process ends."""
  inbox = SocketServer(port, shared_memory=shared_memory)
  inbox.accept_messages_of(1 << 30)
  while True:
    for connection, message in inbox.poll(None):
      assert isinstance(message, bytes)  # No client is in this process.
      codec.unpack(message, connection.memory)
      inbox.reply(connection, action)


def serve_replay(tables: Sequence[Table], directory: str, port: int) -> None:
  """Runs a replay server until the process ends."""
  from nodes.replay import ReplayServer

  ReplayServer(tables, None, 'replay/0', directory, 0.0, port).run()


def serve_monitor(run_dir: str, port: int) -> None:
  """Runs a monitor, without a program, until the process ends."""
  import courier
  from nodes.monitor import Monitor

  monitor, server = Monitor(run_dir, 1, []), courier.Server(port=port, data_only=True)
  server.Bind('report', monitor.report)
  server.Bind('flush', monitor.flush)
  server.Start()
  server.Join()
