"""Collects the stacks of every thread of every node of a running program."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator

from launchers.stop_requests import STACKS
from rundir import node_files, reading, run_directory

_DEADLINE_SECONDS = 10.0
_SETTLED_SECONDS = 1.0


def collect(run_dir: str, node: str = '') -> Iterator[tuple[str, str]]:
  """Makes the nodes of a run write their stacks to their logs, and yields the stacks.

  This works even if a node runs no Python. The run continues.

  Args:
    run_dir: directory of a running program. Its launcher must be on this machine or in a Slurm job.
    node: a single node such as 'actor/3'; '' for all nodes.

  Yields:
    The name of each node and its stacks; '' if it wrote none within 10 seconds.

  Raises:
    ValueError: if it is no run, no launcher can be signalled, or there is no such node; one sentence.
  """
  run_directory.read_record(run_dir)
  logs = node_files.find(run_dir, node_files.LOG)
  if node and node not in logs:
    there = f'it has {", ".join(logs)}' if logs else 'no node has written a log yet'
    raise ValueError(f'{run_dir} has no node {node!r}; {there}.')
  wanted = {name: path for name, path in logs.items() if node in ('', name)}
  before = {name: os.path.getsize(path) for name, path in wanted.items()}
  _ask(run_dir)
  _wait_until_settled(wanted, before)
  for name, path in wanted.items():
    with reading.opened(path) as f:
      f.seek(before[name] if os.path.getsize(path) >= before[name] else 0)
      yield name, f.read().decode(errors='replace')


def _ask(run_dir: str) -> None:
  launcher = run_directory.launcher_of(run_dir)
  if launcher is None:
    raise ValueError(f'{run_dir}: no launcher supervises this run now; its logs say how it ended.')
  if launcher['slurm_job']:
    _signal_job(run_dir, launcher['slurm_job'])
    return
  if launcher['host'] != os.uname().nodename:
    raise ValueError(f'{run_dir}: its launcher runs on {launcher["host"]}; run this command there.')
  try:
    os.kill(launcher['pid'], STACKS)
  except ProcessLookupError:
    raise ValueError(
      f'{run_dir}: its launcher, process {launcher["pid"]}, has been killed.'
    ) from None
  except PermissionError:
    raise ValueError(
      f'{run_dir}: its launcher, process {launcher["pid"]}, belongs to another user; run this command '
      'as that user.'
    ) from None


def _signal_job(run_dir: str, job: str) -> None:
  command = ['scancel', '--batch', '--signal=URG', job]
  try:
    done = subprocess.run(command, capture_output=True, text=True)
  except OSError as error:
    raise ValueError(
      f'{run_dir}: its launcher is in Slurm job {job}, and scancel cannot be run ({error.strerror}); '
      'run this command on a login node of the cluster.'
    ) from error
  if done.returncode:
    said = ' '.join(done.stderr.replace('scancel: error: ', '').split())
    raise ValueError(f'{run_dir}: scancel cannot signal Slurm job {job}, its launcher: {said}')


def _wait_until_settled(logs: dict[str, str], before: dict[str, int]) -> None:
  """Waits until every log has grown and all have stopped growing, or until the deadline."""
  end = time.monotonic() + _DEADLINE_SECONDS
  sizes, since = dict(before), time.monotonic()
  while time.monotonic() < end:
    now = {name: os.path.getsize(path) for name, path in logs.items()}
    if now != sizes:
      sizes, since = now, time.monotonic()
    grown = all(now[name] != before[name] for name in logs)
    if grown and time.monotonic() - since > _SETTLED_SECONDS:
      return
    time.sleep(0.1)
