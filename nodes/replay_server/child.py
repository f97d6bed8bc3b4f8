"""Starts the process of `nodes.replay_server.server`, gives it orders, and watches it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from courier import sockets
from environments.interpreters import ROOT
from nodes.replay_server import interpreter
from nodes.runtime import activity, lifecycle, listening
from nodes.runtime.replay_socket import unix_name

# Reverb waits 5 s for its streams to end.
_STOP_SECONDS = 10.0
# The process of an earlier incarnation may hold its port while it returns its memory.
_PORT_SECONDS = 60.0


class Refused(Exception):
  """Reverb has refused an order; the text is its own."""


def listen(port: int) -> list[socket.socket]:
  """Returns sockets that listen on a TCP port of every interface, and on the Unix socket beside it.

  A restarted node waits until its earlier incarnation has left the port.

  Raises:
    OSError: if the port is in use.
  """
  end = time.monotonic() + (_PORT_SECONDS if lifecycle.restart_count() else 0)
  while True:
    try:
      listeners = [listening.listen(port)]
      break
    except OSError:
      if time.monotonic() >= end:
        raise
      time.sleep(0.1)
  with contextlib.suppress(OSError):  # Another process has the name. TCP is enough.
    listeners.append(sockets.listen_unix(unix_name(port)))
  return listeners


class Child:
  """A process that runs Reverb. It dies with the thread that starts it, and writes to its stderr.

  Attributes:
    refusal: why the process could not get a network namespace of its own; '' if it has one.
  """

  def __init__(
    self,
    tables: Sequence[Mapping[str, Any]],
    scratch: str,
    checkpoint: str | None,
    listeners: Sequence[socket.socket],
  ):
    """Starts the process, and waits until Reverb serves.

    Args:
      tables: the fields of each `nodes.unrolls.tables.Table`.
      scratch: an empty directory, in which Reverb writes its checkpoints.
      checkpoint: to restore; None for empty tables.
      listeners: of `listen`; the caller closes its own afterwards.

    Raises:
      Refused: if Reverb does not accept the checkpoint.
      lifecycle.NonRetryableError: if there is no environment for it, or no certificate where COURIER_TLS
        says; one sentence.
      RuntimeError: if it fails otherwise; one sentence.
    """
    if problem := interpreter.problem():
      raise lifecycle.NonRetryableError(problem)
    self._lock = threading.Lock()
    self._control, there = socket.socketpair()
    numbers = [s.fileno() for s in listeners]
    with there:
      self._process = subprocess.Popen(
        [interpreter.PYTHON, '-P', '-s', '-m', 'nodes.replay_server.server', str(there.fileno())],
        env=_environment(),
        stdin=subprocess.DEVNULL,
        pass_fds=[there.fileno(), *numbers],
        start_new_session=True,  # Signals to the node's group are for the node.
      )
    self.pid = self._process.pid
    activity.parts.add(self.pid)
    self._orders, self._replies = self._control.makefile('w'), self._control.makefile('r')
    begin = {
      'parent': os.getpid(),
      'tables': list(tables),
      'scratch': scratch,
      'checkpoint': checkpoint,
      'listeners': numbers,
    }
    try:
      self.refusal: str = self._order(begin)['refusal']
    except BaseException:
      self.stop()
      raise

  def check_alive(self) -> None:
    """Raises RuntimeError if the process has ended; one sentence that says how."""
    code = self._process.poll()
    if code is None:
      return
    if code == -signal.SIGKILL:
      raise RuntimeError(
        'the process of Reverb has been killed (SIGKILL), as the kernel does where memory runs out: use '
        'a smaller replay, or more memory.'
      )
    how = f'exit code {code}' if code >= 0 else signal.Signals(-code).name
    raise RuntimeError(f'the process of Reverb has ended ({how}); its last lines are above.')

  def ask(self) -> None:
    """Asks Reverb for its tables, and waits for the reply.

    Raises:
      Refused: if Reverb has not replied in time, according to the process.
      RuntimeError: if the process has ended.
    """
    self._order('ask')

  def write_checkpoint(self) -> str:
    """Has Reverb write a checkpoint; returns its directory.

    Raises:
      Refused: if Reverb could not.
      RuntimeError: if the process has ended.
    """
    return self._order('checkpoint')['written']

  def stop(self) -> None:
    """Stops Reverb, within seconds, and the process; kills one that does not stop."""
    with contextlib.suppress(OSError):  # It has ended.
      self._control.shutdown(socket.SHUT_WR)
    try:
      self._process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
      self._process.kill()
      self._process.wait()
    activity.parts.discard(self.pid)

  def _order(self, order: object) -> Mapping[str, Any]:
    with self._lock:
      try:
        print(json.dumps(order), file=self._orders, flush=True)
        line = self._replies.readline()
      except OSError:
        line = ''
    if not line:
      self._process.wait()
      self.check_alive()
    reply = json.loads(line)
    if 'refused' in reply:
      raise Refused(reply['refused'])
    if 'hopeless' in reply:
      raise lifecycle.NonRetryableError(reply['hopeless'])
    if 'error' in reply:
      raise RuntimeError(reply['error'])
    return reply


def _environment() -> dict[str, str]:
  """Returns this process's environment without what is for its own Python, and without proxies."""
  kept = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith('PYTHON') and not name.lower().endswith('_proxy')
  }
  return {**kept, 'PYTHONPATH': ROOT}
