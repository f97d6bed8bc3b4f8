"""Starts the processes of a local run's nodes, as forks of processes that have already imported.

The module is run with LAUNCHER_PID ISOLATE PLAIN JAX. It enters a network namespace of its own, if it is
to, imports what all nodes do, and splits in two. One process imports the rest of what nodes without JAX
import, the other that of those with JAX. Each then waits for requests of the launcher and forks a node
for each. The node has the memory of its imports in common with all others, and begins at once.
`launchers.local.forks` is the side of the launcher.

Forking is safe only while the process has no other thread. None of these imports starts one; where the
user's variables have OpenBLAS start some, and for another interpreter or other variables of JAX, the
fork executes the node's command, as a new process would.

Only a process without threads may enter a user namespace, so the launcher cannot. The run is in the
namespace of this process.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import random
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Iterable, Sequence
from typing import Any

from environments import entry
from launchers import guard, heartbeat
from nodes.runtime import network_namespace, open_files

# A request for a node: JSON, the descriptors of its log and of its heartbeat. Or one for a socket.
MESSAGE_BYTES = 1 << 18
ENTRY = 'launchers.node_entry'
ALL_NODES = (
  ENTRY,
  'launchers.profiling',
  'launchpad.launch.worker_manager',
  'cloudpickle',
  'courier',
)
# The modules of our nodes, by whether they import JAX; tests check it. A user's own node imports what it
# needs after the fork.
PLAIN_NODES = (
  'nodes.actor',
  'nodes.evaluator',
  'nodes.monitor',
  'nodes.replay',
  'nodes.evaluation.remote',
)
JAX_NODES = (
  'nodes.learner',
  'nodes.anakin',
  'nodes.impala_actor',
  'nodes.inference_node',
  'nodes.relabeller',
  'nodes.evolver',
  'nodes.evolution_worker',
  'nodes.leaderboard',
  'nodes.replay_loader',
  'nodes.evaluation.compiled',
  'nodes.evaluation.fetched',
  'nodes.evolution.episodes',
)
# Of /proc/PID/stat behind the name: where the command line is in memory.
_ARG_START, _ARG_END = 45, 46


def main(argv: list[str]) -> None:
  """Serves until the launcher closes its side, or ends.

  Args:
    argv: the name of the program, the launcher's process id, whether to enter a network namespace (0 or
      1), and the descriptors on which to serve nodes without and with JAX.
  """
  _, launcher, isolate, plain, jax = argv
  entry.die_with(int(launcher))
  open_files.allow_many()  # One is of each node that runs.
  channel = socket.socket(fileno=int(plain))
  channel_jax = socket.socket(fileno=int(jax))
  server = os.getpid()
  with contextlib.suppress(ConnectionError):  # The launcher has left.
    channel.send(json.dumps({'obstacle': _isolate() if int(isolate) else ''}).encode())
    _import(ALL_NODES)
    if os.fork():
      channel_jax.close()
      _import(PLAIN_NODES)
    else:
      channel.close()
      entry.die_with(server)
      channel = channel_jax
      _import(JAX_NODES)
    _Server(channel).serve()
  os._exit(0)


def _import(modules: Iterable[str]) -> None:
  """Imports modules, up to the first that cannot be; the process of a node reports why."""
  with contextlib.suppress(Exception):
    for module in modules:
      importlib.import_module(module)


def _isolate() -> str:
  """Enters a network namespace; returns why the system refuses, or ''."""
  refusal = network_namespace.enter_if_allowed()
  if not refusal:
    network_namespace.set_resolvable_host_name()
  return refusal


class _Server:
  """Forks nodes on request, and reports how they end."""

  def __init__(self, channel: socket.socket):
    self._channel = channel
    self._selector = selectors.DefaultSelector()
    self._selector.register(channel, selectors.EVENT_READ)
    self._may_fork = len(os.listdir('/proc/self/task')) == 1
    gc.collect()
    gc.freeze()  # The collector leaves these objects, and so the memory in common, alone.

  def serve(self) -> None:
    """Serves until the launcher closes its side."""
    while True:
      for key, _ in self._selector.select():
        if key.fileobj is not self._channel:
          self._report_end(key.fd, key.data)
        elif not self._answer():
          return

  def _answer(self) -> bool:
    """Answers a request; returns False at the end of them."""
    message, descriptors, _, _ = socket.recv_fds(self._channel, MESSAGE_BYTES, 2)
    if not message:
      return False
    request = json.loads(message)
    # Out of processes, memory or descriptors, the server goes on: all nodes would die with it.
    made: list[socket.socket] = []
    reply: dict[str, Any]
    try:
      if 'family' in request:
        made.append(socket.socket(request['family']))
        reply = {'socket': True}
      else:
        reply = {'pid': self._fork(request, descriptors)}
    except OSError as error:
      reply = {'error': str(error)}
    finally:
      for descriptor in descriptors:
        os.close(descriptor)
    socket.send_fds(self._channel, [json.dumps(reply).encode()], [each.fileno() for each in made])
    for each in made:
      each.close()
    return True

  def _fork(self, request: dict[str, Any], descriptors: Sequence[int]) -> int:
    """Starts the process of a node; returns its id."""
    server = os.getpid()
    reader, writer = os.pipe()
    try:
      child = os.fork()
      if not child:
        try:
          self._become(request, descriptors, writer, server)
        except BaseException:
          traceback.print_exc()
        os._exit(1)
    except OSError:
      os.close(reader)
      raise
    finally:
      os.close(writer)
    os.read(reader, 1)  # Until it leads its process group and has its mark.
    os.close(reader)
    try:
      pidfd = os.pidfd_open(child)
    except OSError:
      os.kill(child, signal.SIGKILL)
      os.waitpid(child, 0)
      raise
    self._selector.register(pidfd, selectors.EVENT_READ, child)
    return child

  def _report_end(self, pidfd: int, pid: int) -> None:
    _, status = os.waitpid(pid, 0)
    self._selector.unregister(pidfd)
    os.close(pidfd)
    self._channel.send(
      json.dumps({'ended': pid, 'code': os.waitstatus_to_exitcode(status)}).encode()
    )

  def _become(
    self, request: dict[str, Any], descriptors: Sequence[int], ready: int, server: int
  ) -> None:
    """Makes this fork the process of a node; never returns."""
    log, beats = descriptors
    os.setsid()
    guard.put(request['mark'])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    for pidfd in [k.fd for k in self._selector.get_map().values()]:
      os.close(pidfd)
    self._selector.close()
    for name in request['removed']:
      os.environ.pop(name, None)
    os.environ.update(request['variables'])
    os.environ[entry.PARENT_VARIABLE] = str(server)
    os.environ[heartbeat.VARIABLE] = str(beats)
    if request['cwd']:
      os.chdir(request['cwd'])
    os.close(ready)
    command = request['command']
    if not (request['fork'] and self._may_fork):
      os.set_inheritable(beats, True)
      os.execve(command[0], command, os.environ)
    _show_as(command)
    _reseed()
    sys.path[:] = os.environ['PYTHONPATH'].split(os.pathsep)
    importlib.invalidate_caches()
    sys.argv[:] = [ENTRY, *command[command.index('-c') + 2 :]]
    from launchers import node_entry

    node_entry.main(sys.argv)


def _show_as(command: Sequence[str]) -> None:
  """Has the system show this process with another command line.

  The code between is filled up with spaces, so the length is that of the original one. A command line
  that is longer is not shown.
  """
  with open('/proc/self/stat', 'rb') as f:
    fields = f.read().rpartition(b')')[2].split()
  start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
  code = command.index('-c') + 1
  words = [os.fsencode(word) for word in command]
  missing = end - start - sum(len(word) + 1 for word in words)
  if missing < 0:
    return
  words[code] += b' ' * missing
  ctypes.memmove(start, b''.join(word + b'\0' for word in words), end - start)


def _reseed() -> None:
  """Seeds the generators that are seeded by an import, with which all nodes would draw the same."""
  random.seed()
  if 'numpy' in sys.modules:
    import numpy as np

    np.random.seed()
