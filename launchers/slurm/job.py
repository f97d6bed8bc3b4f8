"""What the process that submits a Slurm job, the launcher inside the job and its nodes share."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from collections.abc import Mapping

import launchpad as lp

from launchers import requests
from launchers.placement import Resources
from launchers.slurm.planning import Plan

JOB_FILE = os.path.join('nodes', 'job.pkl')
REFUSED = 2  # Exit code of a launcher that has started no node.


@dataclasses.dataclass(frozen=True)
class Submission:
  """What the process that submits a job hands to the launcher in it.

  Attributes:
    program: the graph.
    placement: resources for each group.
    plan: the hosts that were asked for, and the slots of the nodes.
    node_timeout: see `supervise.supervise`.
  """

  program: lp.Program
  placement: Mapping[str, Resources]
  plan: Plan
  node_timeout: float


@dataclasses.dataclass(frozen=True)
class JobStopper:
  """What `lp.stop()` calls in a node: signals the launcher through Slurm."""

  job_id: str

  def __call__(self, mark_as_completed: bool = False) -> None:
    """Sends the signal."""
    subprocess.run(
      ['scancel', '--batch', f'--signal={int(requests.DONE)}', self.job_id], check=True
    )
