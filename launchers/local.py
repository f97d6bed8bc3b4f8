"""Runs a graph on this machine, one process for each node, and looks after them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import IO

import launchpad as lp

from launchers import core
from launchers.placement import Resources, environment_variables

STOP_SECONDS = 6.0
FAILED = 1
_EXIT_CODES: dict[int, int] = {signal.SIGUSR1: 0, signal.SIGINT: 130, signal.SIGTERM: 143}


class _Process:
  """A running node."""

  def __init__(self, task: core.NodeTask, resources: Resources, log_path: str):
    self.task = task
    self.log_path = log_path
    environment = {
      **os.environ,
      **environment_variables(resources),
      'PYTHONPATH': os.pathsep.join(p or os.getcwd() for p in sys.path),
      'PYTHONUNBUFFERED': '1',
      'LAUNCHPOD_LAUNCHER_PID': str(os.getpid()),
    }
    with open(log_path, 'ab') as log:
      self._popen = subprocess.Popen(
        [sys.executable, '-m', 'launchers.node_entry', task.payload],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C in the terminal reaches the launcher only.
      )

  @property
  def pid(self) -> int:
    return self._popen.pid

  def exit_code(self) -> int | None:
    """Returns None while the process runs; -N if signal N killed it."""
    return self._popen.poll()

  def send(self, number: int) -> None:
    """Signals the process and whatever it has started."""
    if self._popen.poll() is None:
      with contextlib.suppress(ProcessLookupError):
        os.killpg(self._popen.pid, number)


def launch(
  program: lp.Program,
  placement: Mapping[str, Resources],
  run_dir: str,
  out: IO[str] = sys.stderr,
  started: Callable[[], None] = lambda: None,
) -> int:
  """Runs a program to its end.

  The program ends when every node has returned, when a node calls `lp.stop()`, when a node fails, or
  on SIGINT and SIGTERM. Then every process gets SIGTERM, and SIGKILL 6 seconds later; a second
  Ctrl-C kills at once. Each node's output is in `run_dir/logs/<label>-<index>.log`.

  Args:
    program: the graph.
    placement: resources for each group.
    run_dir: an existing directory.
    out: where to report a failure.
    started: called once every address is bound.

  Returns:
    The exit code: 0; 1 if a node failed, after its log's end, traceback last, went to `out`; 130
    after Ctrl-C; 143 after SIGTERM.
  """
  payloads = os.path.join(run_dir, 'nodes')
  logs = os.path.join(run_dir, 'logs')
  for directory in (payloads, logs):
    os.makedirs(directory, exist_ok=True)
  tasks = core.prepare(
    program,
    lambda label, index, count: [f'localhost:{port}' for port in core.free_ports(count)],
    core.SignalStopper(os.getpid()),
    payloads,
  )
  started()
  with _signals() as requests:
    processes = [
      _Process(t, placement[t.label], os.path.join(logs, f'{t.label}-{t.index}.log')) for t in tasks
    ]
    try:
      code, culprit = _supervise(processes, requests)
    finally:
      for process in processes:
        process.send(signal.SIGKILL)
  if culprit is not None:
    _report(culprit, out)
  return code


def _supervise(processes: list[_Process], requests: list[int]) -> tuple[int, _Process | None]:
  """Waits for the end; returns the exit code and the node whose failure caused it, if one did."""
  code, culprit, deadline = 0, None, None
  pause = threading.Event()
  while True:
    exited = {p: c for p in processes if (c := p.exit_code()) is not None}
    if deadline is None and any(exited.values()):
      code, culprit = FAILED, next(p for p, c in exited.items() if c)
      deadline = _stop(processes)
    elif deadline is None and requests:
      code = _EXIT_CODES[requests[0]]
      deadline = _stop(processes)
    if len(exited) == len(processes):
      return code, culprit
    overdue = deadline is not None and time.monotonic() > deadline
    if overdue or requests.count(signal.SIGINT) > 1:
      for process in processes:
        process.send(signal.SIGKILL)
    pause.wait(0.1)


def _stop(processes: list[_Process]) -> float:
  """Asks every process to stop; returns when to kill those that have not."""
  for process in processes:
    process.send(signal.SIGTERM)
  return time.monotonic() + STOP_SECONDS


def _report(process: _Process, out: IO[str], lines: int = 60) -> None:
  code = process.exit_code()
  assert code is not None
  how = f'was killed by {signal.Signals(-code).name}' if code < 0 else f'exited with code {code}'
  with open(process.log_path, errors='replace') as log:
    tail = log.readlines()[-lines:]
  starts = [
    i for i, line in enumerate(tail) if line.startswith('Traceback (most recent call last)')
  ]
  print(f'error: node {process.task.name} {how}; the end of {process.log_path}:', file=out)
  print(''.join(tail[starts[-1] :] if starts and code > 0 else tail), end='', file=out, flush=True)


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
  """Collects the requests to stop: SIGUSR1 from `lp.stop()`, SIGINT, SIGTERM."""
  requests: list[int] = []
  before = {n: signal.signal(n, lambda number, frame: requests.append(number)) for n in _EXIT_CODES}
  try:
    yield requests
  finally:
    for number, handler in before.items():
      signal.signal(number, handler)
