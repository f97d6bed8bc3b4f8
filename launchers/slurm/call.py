"""Slurm as an engine of `launchers.launch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launchers.engine import Job
from launchers.slurm import submit
from launchers.slurm.planning import Options
from launchers.supervise import RunCallbacks

_NAMES = {
  'slurm_cpu_nodes': 'cpu_nodes',
  'slurm_options': 'common',
  'slurm_accelerator_options': 'accelerator',
  'slurm_cpu_options': 'cpu',
  'slurm_requeue': 'requeue',
}
_TYPES = {'slurm_cpu_nodes': (int,), 'slurm_requeue': (bool,)}
OPTIONS: Mapping[str, tuple[type, ...]] = {name: _TYPES.get(name, (str,)) for name in _NAMES}


def prepared(job: Job, options: Mapping[str, Any]) -> Job:
  """Returns the job; raises ValueError for one that sbatch cannot express, or without sbatch."""
  if options.get('slurm_cpu_nodes', 1) < 1:
    raise ValueError(f'slurm_cpu_nodes={options["slurm_cpu_nodes"]} must be at least 1.')
  submit.check(job.placement, dry_run=False)
  submit.script(job.program, job.placement, job.run_dir, _options(options))
  return job


def launch(job: Job, callbacks: RunCallbacks, options: Mapping[str, Any]) -> int:
  """Runs a job to completion; returns the exit code. The launcher in the job records its end."""
  return submit.launch(
    job.program,
    job.placement,
    job.run_dir,
    _options(options),
    node_timeout=job.node_timeout,
    node_output=job.node_output,
  )


def _options(options: Mapping[str, Any]) -> Options:
  return Options(**{_NAMES[name]: value for name, value in options.items()})
