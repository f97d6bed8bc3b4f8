"""Runs a graph as a Slurm job: submits it and follows its output.

The job does not depend on this process: `launchers.slurm.allocation` is its launcher.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import IO

import cloudpickle
import launchpad as lp
from launchpad.launch import serialization

from launchers import binding, stop_requests, streams, supervise
from launchers.engine import Job
from launchers.node_output import FILES
from launchers.placement import Resources
from launchers.slurm import planning
from launchers.slurm.job import JOB_FILE, REFUSED, RESTARTS, Submission
from rundir import files, run_end

_FINAL = {'BOOT_FAIL', 'CANCELLED', 'COMPLETED', 'DEADLINE', 'FAILED', 'NODE_FAIL'}
_FORGOTTEN = 'FORGOTTEN'  # Ours: Slurm knows the job no longer.
_FINAL |= {'OUT_OF_MEMORY', 'PREEMPTED', 'TIMEOUT', _FORGOTTEN}
# Exit codes of the launcher in the job after it has reported the reason.
_LAUNCHER_CODES = {supervise.FAILED, REFUSED, *stop_requests.EXIT_CODES.values()}
# Pauses between questions about a job: a tenth of its age, within these seconds.
_POLL_SECONDS = 0.3, 3.0
_SLOW_SECONDS = 2.0
_DEFAULT = planning.Options()


def check(placement: Mapping[str, Resources], dry_run: bool) -> None:
  """Raises a one-sentence ValueError if the groups cannot run as a job, or sbatch is missing."""
  planning.check(placement)
  if not dry_run and shutil.which('sbatch') is None:
    raise ValueError(
      '--launcher=slurm needs sbatch, which is not on the PATH; run launch.py on a login node of the '
      'cluster.'
    )


def script(
  program: lp.Program,
  placement: Mapping[str, Resources],
  run_dir: str,
  options: planning.Options,
) -> str:
  """Returns the batch script of a job; raises ValueError if the job is invalid."""
  return _plan(program, placement, run_dir, options)[1]


def _plan(
  program: lp.Program,
  placement: Mapping[str, Resources],
  run_dir: str,
  options: planning.Options,
) -> tuple[planning.Plan, str]:
  """Returns the plan of a job and its batch script."""
  counts = {label: len(nodes) for label, nodes in program.groups.items()}
  plan = planning.plan(counts, placement, options)
  path = binding.python_path()
  return plan, planning.script(plan, options, program.name, run_dir, sys.executable, path)


def launch(
  program: lp.Program,
  placement: Mapping[str, Resources],
  run_dir: str,
  options: planning.Options = _DEFAULT,
  follow: bool = True,
  node_timeout: float = math.inf,
  out: IO[str] | None = None,
  node_output: str = FILES,
  job: Job | None = None,
) -> int:
  """Submits a program and follows the job to completion.

  The job's output goes to `run_dir/slurm.log`, each node's to `run_dir/logs/<label>-<index>.log`.
  While following, this process forwards the first SIGINT or SIGTERM to the job, which stops as under
  the local launcher. A second signal cancels the job. After a third, this process exits and leaves the
  job running.

  Args:
    program: the graph.
    placement: resources of each group.
    run_dir: an existing directory, shared by the hosts of the job.
    options: the user's options.
    follow: whether to wait for the end of the job.
    node_timeout: see `supervise.supervise`.
    out: receives the job's output; None for stdout.
    node_output: see `launchers.node_output`; the job's output then has that of its nodes.
    job: the job of launch.py, so that a requeued job can resume the run; None without one.

  Returns:
    The exit code of the job, as for the local launcher; 0 if it is not followed.

  Raises:
    ValueError: if the job cannot be submitted; one sentence.
  """
  out = out or sys.stdout
  plan, text = _plan(program, placement, run_dir, options)
  serialization.enable_lru_cache_pickling_once()
  try:
    payload = cloudpickle.dumps(
      Submission(program, placement, plan, node_timeout, node_output, options.requeue, job)
    )
  except Exception as error:
    raise ValueError(
      f'program {program.name!r} cannot be sent to a job, because it cannot be pickled: {error}'
    ) from error
  path = os.path.join(run_dir, 'slurm.sh')
  with binding.starting():
    files.write(os.path.join(run_dir, JOB_FILE), payload)
    files.write(path, text.encode())
  log = os.path.join(run_dir, 'slurm.log')
  earlier = os.path.getsize(log) if os.path.exists(log) else 0  # From the run that is resumed.
  # The job inherits it, also that of another job in which launch.py runs.
  environment = {name: value for name, value in os.environ.items() if name != RESTARTS}
  with streams.announced_if_slow('waiting for sbatch to submit the job', _SLOW_SECONDS):
    submitted = subprocess.run(
      ['sbatch', '--parsable', path], env=environment, capture_output=True, text=True
    )
  if submitted.returncode:
    said = ' '.join(submitted.stderr.replace('sbatch: error: ', '').split())
    raise ValueError(f'sbatch refused the job, which --dry_run prints: {said}')
  job_id = submitted.stdout.strip().partition(';')[0]
  streams.say(f'job {job_id}; its output is in {log}', out)
  streams.say(f'to stop it: scancel --batch --signal=TERM {job_id}', out)
  return _follow(job_id, run_dir, log, earlier, out) if follow else 0


def _follow(job_id: str, run_dir: str, log: str, earlier: int, out: IO[str]) -> int:
  """Copies the job's output from an offset until the job has ended; returns its exit code."""
  written, forwarded, shown, restarts = 0, 0, '', 0
  pause, began = threading.Event(), time.monotonic()
  shortest, longest = _POLL_SECONDS
  with stop_requests.collected() as asked:
    while True:
      state, reason, code, restart = _state(job_id)
      written += _copy(log, earlier + written, out)
      if state in _FINAL:
        break
      if restart > restarts:
        streams.say(f'job {job_id} has been requeued (restart {restart})', out)
        restarts, shown = restart, ''
      if (waits := _waits(state, reason)) not in ('', shown):
        streams.say(f'job {job_id} {waits}', out)
        shown = waits
      age = time.monotonic() - began
      for _ in range(round(min(max(shortest, age / 10), longest) / 0.1)):
        if len(asked) > forwarded:
          if len(asked) > 2:
            return stop_requests.EXIT_CODES[asked[0]]
          _cancel(job_id, asked[-1], first=not forwarded)
          forwarded = len(asked)
          break
        pause.wait(0.1)
  if state == 'CANCELLED':
    return stop_requests.EXIT_CODES[asked[0] if asked else signal.SIGTERM]
  if written and state == ('FAILED' if code else 'COMPLETED') and code in _LAUNCHER_CODES:
    return code
  end = run_end.end_of(run_dir)
  if state == _FORGOTTEN and end is not None:  # This process was suspended when the job ended.
    return int(end['exit_code'])
  # The launcher in the job has not reported the reason.
  why = '' if written else f' and wrote nothing to {log}; does its first host share that directory?'
  streams.say(f'error: job {job_id} ended as {state}{why or "."}', out)
  return supervise.FAILED


def _waits(state: str, reason: str) -> str:
  """Returns the predicate of a sentence about what keeps a job from running; '' for nothing."""
  if state == 'PENDING' and reason != 'None':
    return f'is pending ({reason})'
  if state == 'CONFIGURING':
    return 'waits for its hosts to boot'
  return '' if state else f'cannot be asked about; trying again ({reason})'


def _state(job_id: str) -> tuple[str, str, int, int]:
  """Returns what Slurm knows of a job.

  Returns:
    Its state, '' if Slurm does not reply; the reason of either; its exit code, 128 + N for signal N; and
    how often it has been requeued.
  """
  shown = subprocess.run(
    ['scontrol', '--oneliner', 'show', 'job', job_id], capture_output=True, text=True
  )
  first = shown.stdout.partition('\n')[0]
  found = re.search(r'JobState=(\w+) Reason=(\S+).* Restarts=(\d+).* ExitCode=(\d+):(\d+)', first)
  if found is None:
    # Retry if the controller does not reply; an unknown job id is final.
    state = _FORGOTTEN if 'Invalid job id' in shown.stderr else ''
    return state, ' '.join(shown.stderr.split()), 0, 0
  state, reason, restarts, code, number = found.groups()
  exit_code = int(code) or (128 + int(number) if int(number) else 0)
  return state, reason, exit_code, int(restarts)


def _copy(log: str, offset: int, out: IO[str]) -> int:
  """Copies a file from an offset to its end; returns the number of bytes."""
  try:
    with open(log, 'rb') as f:
      f.seek(offset)
      new = f.read()
  except FileNotFoundError:
    return 0
  with contextlib.suppress(OSError, ValueError):  # Ignores a closed terminal.
    out.write(new.decode(errors='replace'))
    out.flush()
  return len(new)


def _cancel(job_id: str, number: int, first: bool) -> None:
  """Forwards the first signal to the launcher in the job; cancels a pending or signalled job."""
  if first:
    name = signal.Signals(number).name.removeprefix('SIG')
    commands = [['--state=PENDING'], ['--batch', f'--signal={name}']]
  else:
    commands = [[]]
  for options in commands:  # Each complains if the job's state does not match.
    subprocess.run(['scancel', *options, job_id], stderr=subprocess.DEVNULL)
