"""What the launcher in a job does if Slurm may requeue the job, as after a preemption.

A requeued job starts again with the same number and the same script. Its launcher then continues the
run. Slurm requeues a job that it preempts, or that loses a host. The launcher itself has it requeued
when `planning.LIMIT_SIGNAL` announces the time limit.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from launchers import run, streams
from launchers.slurm.job import RESTARTS, Submission
from launchers.stop_requests import EXIT_CODES
from rundir import checkpoints, learners, run_directory, run_end

# Exit code of a launcher that has stopped because of `planning.LIMIT_SIGNAL`.
LIMIT_IS_NEAR = EXIT_CODES[signal.SIGUSR1]


def restarts() -> int:
  """Returns how often Slurm has requeued this job."""
  return int(os.environ.get(RESTARTS) or 0)


def continued(submission: Submission, run_dir: str) -> Submission:
  """Returns what a requeued job has to run: the run from its newest checkpoint, as with --resume.

  A run without a checkpoint begins again, and so does a program of the user's own, which has none that
  are known here.

  Args:
    submission: that of the job.
    run_dir: the run directory, whose record then has another command.
  """
  where = f'{_title()}, restart {restarts()}'
  job = submission.job
  if job is None or job.remake is None or not run_directory.has_checkpoints(run_dir):
    run_end.delete(run_dir)
    why = '' if job is None or job.remake is None else ', because it has no checkpoint yet'
    streams.say(f'{where}: the program begins again{why}')
    return submission
  commands = run_directory.read_record(run_dir).commands
  program, config = job.remake(len(commands))
  job = dataclasses.replace(job, program=program, config=config, resumed=True)
  run.record(job)
  run_end.delete_evaluation(run_dir)
  steps = learners.counts(run_dir)['learner_steps']
  streams.say(f'{where}: the run continues from its checkpoint of learner step {steps:,.0f}')
  return dataclasses.replace(submission, program=program, job=job)


def end_earlier_steps(job_ids: Sequence[str]) -> None:
  """Ends the job steps of the job's earlier start.

  If the first host is lost, Slurm requeues only the first component; the nodes on other hosts run on.

  Args:
    job_ids: the job id of each component.
  """
  listed = subprocess.run(
    ['squeue', '--steps', '--noheader', f'--jobs={",".join(job_ids)}', '--format=%i'],
    capture_output=True,
    text=True,
  )
  numbered = [step for step in listed.stdout.split() if step.rpartition('.')[2].isdecimal()]
  if numbered:
    subprocess.run(['scancel', *numbered], stderr=subprocess.DEVNULL)


def progress(run_dir: str) -> list[list[int]]:
  """Returns the steps of the checkpoints of every learner."""
  folders = map(checkpoints.directory, learners.directories(run_dir))
  return [sorted(checkpoints.steps(folder)) for folder in folders]


def requeue(submission: Submission, run_dir: str, before: list[list[int]]) -> bool:
  """Requeues this job at its time limit, unless it would get no further; returns whether it has.

  Args:
    submission: that of the job.
    run_dir: the run directory.
    before: `progress` when the job started.
  """
  learns = submission.job is not None and submission.job.remake is not None
  if learns and progress(run_dir) == before:
    streams.say(
      f'error: {_title()} has written no checkpoint within its time limit, so it is not requeued; '
      'raise --time in --slurm_options.',
      sys.stderr,
    )
    return False
  command = ['scontrol', 'requeue', os.environ['SLURM_JOB_ID']]
  done = subprocess.run(command, capture_output=True, text=True)
  if done.returncode:
    said = ' '.join(done.stderr.split())
    streams.say(f'error: {_title()} cannot be requeued: {said}', sys.stderr)
    return False
  streams.say(f'{_title()} is near its time limit and has been requeued')
  return True


def _title() -> str:
  return f'job {os.environ["SLURM_JOB_ID"]}'
