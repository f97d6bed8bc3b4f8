"""Types shared by the process that submits a Slurm job, the launcher in the job, and its nodes."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from collections.abc import Mapping
from typing import TYPE_CHECKING

import launchpad as lp

from launchers import stop_requests
from launchers.placement import Resources
from launchers.slurm.planning import Plan

if TYPE_CHECKING:  # Nodes import this module, perhaps with an older Python.
  from launchers.engine import Job

JOB_FILE = os.path.join('nodes', 'job.pkl')
# Slurm's variable: how often it has requeued the job; 0 if absent.
RESTARTS = 'SLURM_RESTART_COUNT'
REFUSED = 2  # Exit code of a launcher that has started no node.


@dataclasses.dataclass(frozen=True)
class Submission:
  """Data that the submitting process passes to the launcher in the job.

  Attributes:
    program: the graph.
    placement: resources of each group.
    plan: the requested hosts, and the slots of the nodes.
    node_timeout: see `supervise.supervise`.
    node_output: see `launchers.node_output`.
    requeue: whether to requeue the job at its time limit.
    job: the job of launch.py, if Slurm may requeue it; else None.
  """

  program: lp.Program
  placement: Mapping[str, Resources]
  plan: Plan
  node_timeout: float
  node_output: str
  requeue: bool = False
  job: Job | None = None


@dataclasses.dataclass(frozen=True)
class JobStopper:
  """Signals the launcher through Slurm; `lp.stop()` calls it in a node."""

  job_id: str

  def __call__(self, mark_as_completed: bool = False) -> None:
    """Sends the signal."""
    subprocess.run(
      ['scancel', '--batch', f'--signal={int(stop_requests.DONE)}', self.job_id], check=True
    )
