"""Runs a graph on this machine, one process for each node, and looks after them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
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
    self.restart()

  def can_restart(self) -> bool:
    return True

  def restart(self) -> None:
    environment = {
      **os.environ,
      **environment_variables(self.resources),
      'PYTHONPATH': core.python_path(),
    }
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
  started: Callable[[], None] = lambda: None,
  restarted: Callable[[str], None] = lambda name: None,
) -> int:
  """Runs a program to its end.

  The program ends when every node has returned, when a node calls `lp.stop()`, when a node fails whose
  group allows no further restart, or on SIGINT and SIGTERM. Then every process gets SIGTERM, and
  SIGKILL 6 seconds later; a second Ctrl-C kills at once. Each node's output is in
  `run_dir/logs/<label>-<index>.log`.

  Args:
    program: the graph.
    placement: resources for each group.
    run_dir: an existing directory.
    out: where to report a failure.
    started: called once every address is bound.
    restarted: called with the name of each node that failed and is to be started again.

  Returns:
    The exit code: 0; 1 if a node failed, after its log's end, traceback last, went to `out`; 130
    after Ctrl-C; 143 after SIGTERM.
  """
  payloads = os.path.join(run_dir, 'nodes')
  os.makedirs(payloads, exist_ok=True)
  tasks = core.prepare(
    program,
    lambda label, index, count: [f'localhost:{port}' for port in core.free_ports(count)],
    core.SignalStopper(os.getpid()),
    payloads,
  )
  started()
  with supervise.stop_requests() as requests:
    nodes = [_LocalNode(t, placement[t.label], core.log_path(run_dir, t)) for t in tasks]
    try:
      code, culprit = supervise.supervise(
        nodes, requests, lambda text: print(text, file=out, flush=True), restarted
      )
    finally:
      for node in nodes:
        node.send(signal.SIGKILL)
  if culprit is not None:
    supervise.report(culprit, out)
  return code
