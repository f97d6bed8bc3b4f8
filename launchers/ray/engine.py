"""The engine for the Ray cluster of this machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from launchers.engine import Engine, Job
from launchers.graph import describe
from launchers.options import LONGEST_SECONDS, option
from launchers.supervise import RunCallbacks


@dataclasses.dataclass(frozen=True)
class Ray(Engine):
  """Runs a graph on a Ray cluster. Ray is imported only on use.

  Attributes:
    address: host:port of the cluster's head, or 'auto'.
    timeout: see `machines.find`, in seconds.
  """

  address: str = option(
    'auto',
    "host:port of the Ray cluster's head; auto: the cluster of this machine",
    flag='ray_address',
  )
  timeout: float | None = option(
    None,
    'seconds for Ray to find a machine for every node, perhaps among machines that join meanwhile; '
    'default: 60, but 0 if the machines of the cluster are too few or too small',
    flag='ray_timeout',
    kind=float,
    at_least=0.0,
    at_most=LONGEST_SECONDS,
  )

  def check(self, job: Job, dry_run: bool) -> Sequence[str]:
    """Raises ValueError for groups that Ray cannot place."""
    from launchers.ray import reservation

    reservation.check(job.placement)
    return ()

  def preview(self, job: Job) -> str:
    """Returns the output of --dry_run, with what the groups ask of Ray and what the cluster has."""
    from launchers.ray import cluster

    asked = describe.requests(job.program, job.placement)
    try:
      has = cluster.describe(job.program, job.placement, self.address)
    except ValueError as error:
      has = f'not compared with a cluster: {error}'
    return f'{super().preview(job)}\n\n{asked}\n{has}'

  def launch(self, job: Job, callbacks: RunCallbacks) -> int:
    """Starts the nodes on the cluster, and supervises them."""
    from launchers.ray import cluster

    return cluster.launch(
      job.program,
      job.placement,
      job.run_dir,
      self.address,
      self.timeout,
      callbacks=callbacks,
      node_timeout=job.node_timeout,
    )
