"""Runs a graph as a Slurm job: submits it and follows its output.

The job does not depend on this process: `launchers.slurm.allocation` is its launcher.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import IO, TYPE_CHECKING

import cloudpickle
from launchpad.launch import serialization

from environments import entry
from launchers import binding, stop_requests, streams, supervise
from launchers.placement import Resources
from launchers.slurm import planning
from launchers.slurm.job import JOB_FILE, RESTARTS, Submission
from rundir import files, run_end

if TYPE_CHECKING:
  from launchers.engine import Job
  from launchers.slurm.engine import Slurm

_FINAL = {'BOOT_FAIL', 'CANCELLED', 'COMPLETED', 'DEADLINE', 'FAILED', 'NODE_FAIL'}
_FORGOTTEN = 'FORGOTTEN'  # Ours: Slurm knows the job no longer.
_FINAL |= {'OUT_OF_MEMORY', 'PREEMPTED', 'TIMEOUT', _FORGOTTEN}
# Pauses between questions about a job: a tenth of its age, within these seconds.
_POLL_SECONDS = 0.3, 3.0
_SLOW_SECONDS = 2.0


def check(placement: Mapping[str, Resources], dry_run: bool) -> None:
  """Raises a one-sentence ValueError if the groups cannot run as a job, or sbatch is missing."""
  planning.check(placement)
  if not dry_run and shutil.which('sbatch') is None:
    raise ValueError(
      '--launcher=slurm needs sbatch, which is not on the PATH; run launch.py on a login node of the '
      'cluster.'
    )


def script(job: Job, options: Slurm, run_dir: str) -> str:
  """Returns the batch script of a job in a run directory; raises ValueError if the job is invalid."""
  return _plan(job, options, run_dir)[1]


def _plan(job: Job, options: Slurm, run_dir: str) -> tuple[planning.Plan, str]:
  """Returns the plan of a job and its batch script."""
  counts = {label: len(nodes) for label, nodes in job.program.groups.items()}
  plan = planning.plan(counts, job.placement, options)
  path = entry.python_path()
  return plan, planning.script(plan, options, job.program.name, run_dir, sys.executable, path)


def launch(
  job: Job,
  options: Slurm,
  out: IO[str] | None = None,
  accepted: Callable[[], object] = lambda: None,
) -> int:
  """Submits a program and follows the job to completion.

  The job's output goes to `run_dir/slurm.log`, each node's to `run_dir/logs/<label>-<index>.log`.
  While following, this process forwards the first SIGINT or SIGTERM to the job, which stops as under
  the local launcher. A second signal cancels the job. After a third, this process exits and leaves the
  job running.

  Args:
    job: the job; its run directory is shared by the hosts.
    options: the user's options.
    out: receives the job's output; None for stdout. With TERMINAL as `job.node_output` it has that of
      the nodes.
    accepted: called once Slurm has the job.

  Returns:
    The exit code of the job, as for the local launcher; 0 if it is not followed.

  Raises:
    ValueError: if the job cannot be submitted; one sentence.
  """
  out, run_dir = out or sys.stdout, job.run_dir
  plan, text = _plan(job, options, run_dir)
  serialization.enable_lru_cache_pickling_once()
  submission = Submission(
    job.program,
    job.placement,
    plan,
    job.node_timeout,
    job.node_output,
    options.requeue,
    job if options.requeue else None,
  )
  try:
    payload = cloudpickle.dumps(submission)
  except Exception as error:
    raise ValueError(
      f'program {job.program.name!r} cannot be sent to a job, because it cannot be pickled: {error}'
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
  accepted()
  job_id = submitted.stdout.strip().partition(';')[0]
  streams.say(f'job {job_id}; its output is in {log}', out)
  streams.say(f'to stop it: scancel --batch --signal=TERM {job_id}', out)
  return _follow(job_id, run_dir, log, earlier, out) if options.wait else 0


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
    if not asked:
      streams.say(f'job {job_id} has been cancelled', out)
    return stop_requests.EXIT_CODES[asked[0] if asked else signal.SIGTERM]
  end = run_end.end_of(run_dir)
  if state == _FORGOTTEN and end is not None:  # This process was suspended when the job ended.
    return int(end['exit_code'])
  if written and state == 'COMPLETED' and code == 0:
    return 0
  # The launcher in the job records its end once it has reported the reason. Slurm may end it before, and
  # one that it has started again before it says anything: the output is then that of the earlier start.
  reported = (end['exit_code'], end.get('restarts')) if end is not None else None
  if state == 'FAILED' and (code, restart) == reported:
    return code
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
  try:
    shown = subprocess.run(
      ['scontrol', '--oneliner', 'show', 'job', job_id], capture_output=True, text=True
    )
  except OSError as error:  # This machine cannot start it, for now.
    return '', str(error), 0, 0
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
  except OSError:  # It is not there yet, or the shared file system does not reply.
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
