"""The engine for the Ray cluster of this machine."""

from __future__ import annotations

import math

from absl import flags

from launchers.engine import LONGEST_SECONDS, Engine, Job
from launchers.graph import describe
from launchers.supervise import RunCallbacks

_ADDRESS = flags.DEFINE_string(
  'ray_address', 'auto', "host:port of the Ray cluster's head; auto: the cluster of this machine"
)
_TIMEOUT = flags.DEFINE_float(
  'ray_timeout',
  None,
  'seconds for Ray to find a machine for every node, perhaps among machines that join meanwhile; '
  'default: 60, but 0 if the machines of the cluster are too few or too small',
  lower_bound=0.0,
  upper_bound=LONGEST_SECONDS,
)


class Ray(Engine):
  """Runs a graph on a Ray cluster. Ray is imported only on use."""

  def check(self, job: Job, dry_run: bool) -> None:
    """Raises ValueError for a non-finite timeout, or for groups that Ray cannot place."""
    if _TIMEOUT.value is not None and not math.isfinite(_TIMEOUT.value):
      raise ValueError(f'--ray_timeout={_TIMEOUT.value} must be a finite number.')
    from launchers.ray import reservation

    reservation.check(job.placement)

  def preview(self, job: Job) -> str:
    """Returns the output of --dry_run, with what the groups ask of Ray and what the cluster has."""
    from launchers.ray import cluster

    asked = describe.requests(job.program, job.placement)
    try:
      has = cluster.describe(job.program, job.placement, _ADDRESS.value)
    except ValueError as error:
      has = f'not compared with a cluster: {error}'
    return f'{super().preview(job)}\n\n{asked}\n{has}'

  def launch(self, job: Job, callbacks: RunCallbacks) -> int:
    """Runs a job on the cluster of --ray_address."""
    from launchers.ray import cluster

    return cluster.launch(
      job.program,
      job.placement,
      job.run_dir,
      _ADDRESS.value,
      _TIMEOUT.value,
      callbacks=callbacks,
      node_timeout=job.node_timeout,
    )
