"""Ray as an engine of `launchers.launch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launchers.engine import LONGEST_SECONDS, Job
from launchers.ray import cluster, reservation
from launchers.supervise import RunCallbacks

OPTIONS: Mapping[str, tuple[type, ...]] = {'ray_address': (str,), 'ray_timeout': (int, float)}


def prepared(job: Job, options: Mapping[str, Any]) -> Job:
  """Returns the job; raises ValueError for a wrong timeout, or for groups that Ray cannot place."""
  timeout = options.get('ray_timeout', 0.0)
  if not 0.0 <= timeout <= LONGEST_SECONDS:
    raise ValueError(f'ray_timeout={timeout!r} must be seconds from 0 to {LONGEST_SECONDS:g}.')
  reservation.check(job.placement)
  return job


def launch(job: Job, callbacks: RunCallbacks, options: Mapping[str, Any]) -> int:
  """Runs a job to completion; returns the exit code."""
  named = {name.removeprefix('ray_'): value for name, value in options.items()}
  return cluster.launch(
    job.program,
    job.placement,
    job.run_dir,
    callbacks=callbacks,
    node_timeout=job.node_timeout,
    **named,
  )
