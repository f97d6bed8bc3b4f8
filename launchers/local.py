"""Runs a graph on this machine, one process for each node, and looks after them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from typing import IO

import launchpad as lp

from launchers import core, process, supervise
from launchers.placement import Resources, environment_variables


class _LocalNode:
  """A node that runs in a child process; a `supervise.Node`."""

  def __init__(self, task: core.NodeTask, resources: Resources, log_path: str):
    self.name = task.name
    self.log_path = log_path
    self.resources = resources
    self._payload = task.payload
    self._life = 0
    self.restart()

  def can_restart(self) -> bool:
    return True

  def restart(self) -> None:
    environment = {
      **os.environ,
      **environment_variables(self.resources),
      'PYTHONPATH': core.python_path(),
      'LAUNCHPOD_LIFE': str(self._life),
    }
    self._life += 1
    with open(self.log_path, 'ab') as log:
      self._popen = process.start(sys.executable, self._payload, environment, log)

  def exit_code(self) -> int | None:
    return self._popen.poll()

  def ending(self) -> str:
    code = self._popen.poll()
    assert code is not None
    return supervise.describe_exit(code)

  def send(self, number: int) -> None:
    process.send(self._popen, number)


def launch(
  program: lp.Program,
  placement: Mapping[str, Resources],
  run_dir: str,
  out: IO[str] = sys.stderr,
  watch: supervise.Watch = supervise.NOBODY,
) -> int:
  """Runs a program to its end.

  The program ends when every node has returned, when a node calls `lp.stop()`, when a node fails whose
  group allows no further restart, or on SIGINT and SIGTERM. Then every process gets SIGTERM, and
  SIGKILL 30 seconds later; a second Ctrl-C kills at once. Each node's output is in
  `run_dir/logs/<label>-<index>.log`.

  Args:
    program: the graph.
    placement: resources for each group.
    run_dir: an existing directory.
    out: where to report a failure.
    watch: is told what happens, and asked who is silent.

  Returns:
    The exit code: 0; 1 if a node failed, after its log's end, traceback last, went to `out`; 130
    after Ctrl-C; 143 after SIGTERM.
  """
  payloads = os.path.join(run_dir, 'nodes')
  os.makedirs(payloads, exist_ok=True)
  count = sum(len(node.addresses) for group in program.groups.values() for node in group)
  # All at once: one that is not in use yet might be found twice.
  ports = iter(core.free_ports(count))
  tasks = core.prepare(
    program,
    lambda label, index, count: [f'127.0.0.1:{next(ports)}' for _ in range(count)],
    core.SignalStopper(os.getpid()),
    payloads,
  )
  watch.started()
  with supervise.stop_requests() as requests:
    nodes = [_LocalNode(t, placement[t.label], core.log_path(run_dir, t)) for t in tasks]
    try:
      return supervise.supervise(nodes, requests, out, watch)
    finally:
      for node in nodes:
        node.send(signal.SIGKILL)
