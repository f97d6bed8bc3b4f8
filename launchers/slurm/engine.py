"""The engine for Slurm: submits a job and follows it."""

from __future__ import annotations

from absl import flags

from launchers.engine import Engine, Job
from launchers.graph import describe
from launchers.slurm import submit
from launchers.slurm.planning import Options
from launchers.supervise import RunCallbacks
from rundir import run_directory

_CPU_NODES = flags.DEFINE_integer(
  'slurm_cpu_nodes',
  1,
  'number of CPU hosts, shared by the nodes without an accelerator',
  lower_bound=1,
)
_OPTIONS = flags.DEFINE_string(
  'slurm_options', '', 'sbatch options for every host of the job: "--time=60 --account=me"'
)
_ACCELERATOR_OPTIONS = flags.DEFINE_string(
  'slurm_accelerator_options', '', 'further sbatch options for accelerator hosts: "--partition=tpu"'
)
_CPU_OPTIONS = flags.DEFINE_string('slurm_cpu_options', '', 'further sbatch options for CPU hosts')
_REQUEUE = flags.DEFINE_bool(
  'slurm_requeue',
  False,
  'have Slurm requeue the job when it is preempted, loses a host or reaches its time limit; the run '
  'then continues from its newest checkpoint',
)
_WAIT = flags.DEFINE_bool('slurm_wait', True, 'follow the job and return its exit code')


def _options() -> Options:
  return Options(
    cpu_nodes=_CPU_NODES.value,
    common=_OPTIONS.value,
    accelerator=_ACCELERATOR_OPTIONS.value,
    cpu=_CPU_OPTIONS.value,
    requeue=_REQUEUE.value,
  )


class Slurm(Engine):
  """Runs a graph as a Slurm job. A launcher inside the job supervises the nodes."""

  def check(self, job: Job, dry_run: bool) -> None:
    """Raises ValueError for a job that sbatch cannot express, or (unless a dry run) without sbatch."""
    submit.check(job.placement, dry_run)
    path = run_directory.absolute(job.run_dir or '.')
    submit.script(job.program, job.placement, path, _options())

  def preview(self, job: Job) -> str:
    """Returns the output of --dry_run, with the batch script."""
    script = submit.script(job.program, job.placement, job.run_dir or 'RUN_DIR', _options())
    asked = describe.requests(job.program, job.placement)
    return f'{super().preview(job)}\n\n{asked}\n\n{script.rstrip()}'

  def launch(self, job: Job, callbacks: RunCallbacks) -> int:
    """Submits the job. `callbacks` are unused, because the launcher in the job has its own."""
    return submit.launch(
      job.program,
      job.placement,
      job.run_dir,
      _options(),
      _WAIT.value,
      job.node_timeout,
      node_output=job.node_output,
      job=job if _REQUEUE.value else None,
    )

  def conclude(self, job: Job, code: int, seconds: float) -> None:
    """Prints only how to resume: the launcher in the job has recorded and printed the result."""
    if code:
      super().conclude(job, code, seconds)
