"""Runs a graph on this machine, one process per node, and supervises them."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import signal
import sys
from collections.abc import Mapping
from typing import IO, Any

import launchpad as lp

from courier import sockets
from environments import entry
from launchers import binding, certificate, stop_requests, supervise
from launchers.guard import Guard
from launchers.local import compile_cache, isolation
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
  isolate: str = 'no',
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
    isolate: see `isolation.fork_server`.

  Returns:
    The exit code: 0; 1 if a node failed (the end of its log, traceback last, is then in `out`); 130
    after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP.

  Raises:
    ValueError: if a node cannot be pickled or started, as on a full disk, or isolated, though it must
      be; one sentence. No node runs then.
  """
  payloads = os.path.join(run_dir, 'nodes')
  open_files.allow_many()  # One is the heartbeat of each node.
  with contextlib.ExitStack() as closing:
    with binding.starting():
      # It imports while this process goes on.
      server = isolation.fork_server(isolate, placement)
      closing.callback(server.close)
      server.give(certificate.new())
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
    # The live view calls the monitor.
    closing.enter_context(sockets.made_by(server.make_socket))
    callbacks.started()
    asked = closing.enter_context(stop_requests.collected())
    with binding.starting():
      guard = Guard(sys.executable, entry.python_path())
      closing.callback(guard.close)
    token = binding.run_token()
    cached = compile_cache.variables(os.environ)
    nodes: list[LocalNode] = []
    try:
      with binding.starting():
        for task in tasks:
          log_path = binding.log_path(run_dir, task)
          group = program.groups[task.label]
          resources = placement[task.label].of_node(task.index, len(group))
          variables = cached | environment_variables(resources) | token
          start = functools.partial(server.start, modules=modules(group[task.index]))
          nodes.append(LocalNode(task, resources, log_path, guard, variables, start))
      return supervise.supervise(nodes, asked, out, callbacks, node_timeout)
    finally:
      for node in nodes:
        node.send(signal.SIGKILL)


def modules(node: Any) -> list[str]:
  """Returns the module of a node's class and those of what the class is given, where they are deferred.

  Args:
    node: of a Launchpad program; programs here name a class by its module, and import it in the node.
  """
  parts = [getattr(node, '_constructor', None), *getattr(node, '_args', ())]
  parts += getattr(node, '_kwargs', {}).values()
  return [part.module for part in parts if isinstance(getattr(part, 'module', None), str)]
