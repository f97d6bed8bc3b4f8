"""The engine for Slurm: submits a job, and follows it."""

from __future__ import annotations

from absl import flags

from launchers.launcher import Job, Launcher
from launchers.slurm import submit
from launchers.slurm.planning import Options
from launchers.supervise import RunCallbacks
from rundir import run_directory

_CPU_NODES = flags.DEFINE_integer(
  'slurm_cpu_nodes', 1, 'CPU hosts to spread the nodes without an accelerator over', lower_bound=1
)
_OPTIONS = flags.DEFINE_string(
  'slurm_options', '', 'options of sbatch for every host of the job: "--time=60 --account=me"'
)
_ACCELERATOR_OPTIONS = flags.DEFINE_string(
  'slurm_accelerator_options', '', 'the same, for accelerator hosts: "--partition=tpu"'
)
_CPU_OPTIONS = flags.DEFINE_string('slurm_cpu_options', '', 'the same, for CPU hosts')
_WAIT = flags.DEFINE_bool('slurm_wait', True, 'follow the job and return its exit code')


def _options() -> Options:
  return Options(
    cpu_nodes=_CPU_NODES.value,
    common=_OPTIONS.value,
    accelerator=_ACCELERATOR_OPTIONS.value,
    cpu=_CPU_OPTIONS.value,
  )


class Slurm(Launcher):
  """Runs a graph as a Slurm job, in which a launcher of its own supervises the nodes."""

  resume_flags = ' --launcher=slurm'

  def check(self, job: Job, dry_run: bool) -> None:
    """Refuses what sbatch cannot be asked for, and a machine without sbatch unless in a dry run."""
    submit.check(job.placement, dry_run)
    path = run_directory.absolute(job.run_dir or '.')
    submit.script(job.program, job.placement, path, _options())

  def preview(self, job: Job) -> str:
    """Adds the batch script."""
    script = submit.script(job.program, job.placement, job.run_dir or 'RUN_DIR', _options())
    return f'{super().preview(job)}\n\n{script.rstrip()}'

  def launch(self, job: Job, callbacks: RunCallbacks) -> int:
    """Submits the job; `callbacks` stay unused, since the launcher in the job has its own."""
    return submit.launch(
      job.program, job.placement, job.run_dir, _options(), _WAIT.value, job.node_timeout
    )

  def conclude(self, job: Job, code: int) -> None:
    """Says only how to resume: the launcher in the job has printed the result."""
    if code:
      super().conclude(job, code)
