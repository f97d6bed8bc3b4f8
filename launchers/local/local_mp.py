"""Runs a graph on this machine, one process per node, and supervises them."""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Mapping
from typing import IO

import launchpad as lp

from launchers import binding, certificate, memory, stop_requests, supervise
from launchers.child_process import NodeProcess
from launchers.guard import Guard
from launchers.heartbeat import Beat
from launchers.local import compile_cache
from launchers.placement import Resources, environment_variables
from launchers.watched import describe_exit
from nodes.runtime import open_files
from nodes.runtime.lifecycle import RESTART_COUNT_VARIABLE


class _LocalNode:
  """A node that runs in a child process; a `watched.Node`."""

  def __init__(
    self,
    task: binding.NodeTask,
    resources: Resources,
    log_path: str,
    guard: Guard,
    identity: Mapping[str, str],
  ):
    self.name = task.name
    self.log_path = log_path
    self.resources = resources
    self._payload = task.payload
    self._guard = guard
    self._identity = identity
    self._starts = 0
    self.restart()

  def can_restart(self) -> bool:
    return True

  def restart(self) -> None:
    environment = {
      **compile_cache.variables(self.resources, os.environ),
      **os.environ,
      **environment_variables(self.resources),
      **self._identity,
      **binding.import_variables(self.resources),
      RESTART_COUNT_VARIABLE: str(self._starts),
    }
    self._kills = memory.Kills()
    with open(self.log_path, 'ab') as log:
      self._process = NodeProcess(
        binding.interpreter_of(self.resources),
        self._payload,
        environment,
        log,
        self._guard.mark(),
      )
    self._starts += 1

  def exit_code(self) -> int | None:
    return self._process.exit_code()

  def ending(self) -> str:
    code = self._process.exit_code()
    assert code is not None
    return describe_exit(code) + (self._kills.explain() if code == -signal.SIGKILL else '')

  def beat(self) -> tuple[Beat | None, float]:
    beat, age = self._process.beat()
    self._kills.look(beat)
    return beat, age

  def is_stopped(self) -> bool:
    return self._process.is_stopped()

  def send(self, number: int) -> None:
    self._process.send(number)


def launch(
  program: lp.Program,
  placement: Mapping[str, Resources],
  run_dir: str,
  out: IO[str] | None = None,
  callbacks: supervise.RunCallbacks = supervise.NO_CALLBACKS,
  node_timeout: float = math.inf,
) -> int:
  """Runs a program to completion.

  The program ends when every node has returned, or a node calls `lp.stop()`. It also ends when a node
  fails with no restart left, and on a signal in `stop_requests.EXIT_CODES`. Every process then gets
  SIGTERM, and SIGKILL 30 seconds later. A second Ctrl-C kills every process at once. Each node's output
  is in `run_dir/logs/<label>-<index>.log`.

  Args:
    program: the graph.
    placement: resources of each group.
    run_dir: an existing directory.
    out: receives reports of failures; None for stderr.
    callbacks: called while the program runs.
    node_timeout: see `supervise.supervise`.

  Returns:
    The exit code: 0; 1 if a node failed (the end of its log, traceback last, is then in `out`); 130
    after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP.

  Raises:
    ValueError: if a node cannot be pickled or started, as on a full disk; one sentence. No node runs
      then.
  """
  payloads = os.path.join(run_dir, 'nodes')
  open_files.allow_many()  # One is the heartbeat of each node.
  with binding.starting():
    os.makedirs(payloads, exist_ok=True)
    count = sum(len(node.addresses) for group in program.groups.values() for node in group)
    # All ports in one call: a second call could return a port that is reserved but not yet in use.
    ports = iter(binding.free_ports(count))
    tasks = binding.prepare(
      program,
      lambda label, index, count: [f'127.0.0.1:{next(ports)}' for _ in range(count)],
      binding.SignalStopper(os.getpid()),
      payloads,
    )
  callbacks.started()
  with stop_requests.collected() as asked:
    with binding.starting():
      pem = certificate.in_memory(certificate.new())
      guard = Guard(sys.executable, binding.python_path())
    identity = binding.run_token() | certificate.variable(pem)
    nodes: list[_LocalNode] = []
    try:
      with binding.starting():
        for task in tasks:
          log_path = binding.log_path(run_dir, task)
          size = len(program.groups[task.label])
          resources = placement[task.label].of_node(task.index, size)
          nodes.append(_LocalNode(task, resources, log_path, guard, identity))
      return supervise.supervise(nodes, asked, out, callbacks, node_timeout)
    finally:
      for node in nodes:
        node.send(signal.SIGKILL)
      guard.close()
      pem.close()
