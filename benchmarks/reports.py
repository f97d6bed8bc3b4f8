"""What a report costs the monitor, which all nodes of a program share."""

from __future__ import annotations

import functools
import os
import tempfile
from concurrent import futures

import psutil

import courier
from benchmarks import costs, servers

# Columns of an actor's report.
_VALUES = {'stepping_share': 0.5, 'waiting_share': 0.5}
_IN_FLIGHT = 64


def seconds_per_report(nodes: int, rounds: int = 4) -> float:
  """Returns the CPU seconds that the monitor's process uses for a report, its file's row included.

  Args:
    nodes: that report in turn; all have reported before.
    rounds: reports of each.
  """
  with tempfile.TemporaryDirectory() as directory:
    run_dir = os.path.join(directory, 'run')
    os.mkdir(run_dir)
    serve = functools.partial(servers.serve_monitor, run_dir)
    with servers.running(directory, 'monitor', serve) as (pid, address):
      client, process = courier.Client(address, data_only=True), psutil.Process(pid)
      _report(client, nodes)
      before = costs.cpu_seconds(process)
      for _ in range(rounds):
        _report(client, nodes)
      return (costs.cpu_seconds(process) - before) / (rounds * nodes)


def _report(client: courier.Client, nodes: int) -> None:
  """Sends a report of each node, and waits until all of them are on the disk."""
  pending: set[futures.Future] = set()
  for i in range(nodes):
    pending.add(client.futures.report(f'actor/{i}', _VALUES))
    if len(pending) >= _IN_FLIGHT:
      done, pending = futures.wait(pending, return_when=futures.FIRST_COMPLETED)
      for reply in done:
        reply.result()
  for reply in pending:
    reply.result()
  client.flush()
