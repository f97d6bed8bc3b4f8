"""The engine for Slurm: submits a job and follows it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from launchers import run
from launchers.engine import Engine, Job
from launchers.graph import describe
from launchers.options import option
from launchers.slurm import submit
from launchers.supervise import RunCallbacks
from rundir import run_directory, run_end


@dataclasses.dataclass(frozen=True)
class Slurm(Engine):
  """Runs a graph as a Slurm job. A launcher inside the job supervises the nodes.

  Attributes:
    cpu_nodes: number of CPU hosts, shared by the nodes without an accelerator.
    options: sbatch options for every component of the job, as in '--time=60 --account=me'.
    accelerator_options: sbatch options for components with accelerators.
    cpu_options: sbatch options for components without accelerators.
    requeue: whether Slurm may requeue the job, and the launcher in it does so at its time limit.
    wait: whether to follow the job to its end.
  """

  cpu_nodes: int = option(
    1,
    'number of CPU hosts, shared by the nodes without an accelerator',
    flag='slurm_cpu_nodes',
    at_least=1,
  )
  options: str = option(
    '',
    'sbatch options for every host of the job: "--time=60 --account=me"',
    flag='slurm_options',
  )
  accelerator_options: str = option(
    '',
    'further sbatch options for accelerator hosts: "--partition=tpu"',
    flag='slurm_accelerator_options',
  )
  cpu_options: str = option('', 'further sbatch options for CPU hosts', flag='slurm_cpu_options')
  requeue: bool = option(
    False,
    'have Slurm requeue the job when it is preempted, loses a host or reaches its time limit; the run '
    'then continues from its newest checkpoint',
    flag='slurm_requeue',
  )
  wait: bool = option(True, 'follow the job and return its exit code', flag='slurm_wait')

  def check(self, job: Job, dry_run: bool) -> Sequence[str]:
    """Raises ValueError for a job that sbatch cannot express, or (unless a dry run) without sbatch."""
    submit.check(job.placement, dry_run)
    submit.script(job, self, run_directory.absolute(job.run_dir or '.'))
    return ()

  def preview(self, job: Job) -> str:
    """Returns the output of --dry_run, with the batch script."""
    script = submit.script(job, self, job.run_dir or 'RUN_DIR')
    asked = describe.requests(job.program, job.placement)
    return f'{super().preview(job)}\n\n{asked}\n\n{script.rstrip()}'

  def launch(self, job: Job, callbacks: RunCallbacks) -> int:
    """Submits the job, and follows it. The launcher in the job has callbacks of its own."""
    return submit.launch(job, self, accepted=callbacks.accepted)

  def conclude(self, job: Job, code: int, seconds: float) -> None:
    """Prints only how to resume: the launcher in the job has recorded and printed the result."""
    if code:
      run.conclude(job, code, seconds, recorded=run_end.end_of(job.run_dir) is not None)
