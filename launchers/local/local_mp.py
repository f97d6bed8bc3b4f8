"""Runs a graph on this machine, one process per node, and supervises them."""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Mapping
from typing import IO

import launchpad as lp

from launchers import binding, certificate, stop_requests, supervise
from launchers.guard import Guard
from launchers.local import compile_cache
from launchers.local_node import LocalNode
from launchers.placement import Resources, environment_variables
from nodes.runtime import open_files


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
    nodes: list[LocalNode] = []
    try:
      with binding.starting():
        for task in tasks:
          log_path = binding.log_path(run_dir, task)
          size = len(program.groups[task.label])
          resources = placement[task.label].of_node(task.index, size)
          variables = compile_cache.variables(os.environ)
          variables |= environment_variables(resources) | identity
          nodes.append(LocalNode(task, resources, log_path, guard, variables))
      return supervise.supervise(nodes, asked, out, callbacks, node_timeout)
    finally:
      for node in nodes:
        node.send(signal.SIGKILL)
      guard.close()
      pem.close()
