"""The table of engines. To add one, write a folder with an `engine.Engine` and add a line here."""

from __future__ import annotations

from collections.abc import Mapping

from launchers.engine import Engine
from launchers.k8s.engine import Kubernetes, Pod
from launchers.local.engine import Local, Threads
from launchers.ray.engine import Ray
from launchers.skypilot.engine import SkyPilot, Task
from launchers.slurm.engine import Slurm

__all__ = [
  'LAUNCH_TYPES',
  'TABLE',
  'Kubernetes',
  'Local',
  'Pod',
  'Ray',
  'SkyPilot',
  'Slurm',
  'Task',
  'Threads',
]

# By the value of --launcher.
TABLE: Mapping[str, type[Engine]] = {
  'local': Local,
  'ray': Ray,
  'slurm': Slurm,
  'k8s': Kubernetes,
  'pod': Pod,
  'skypilot': SkyPilot,
  'task': Task,
}
# By the value of --lp_launch_type, a flag of Launchpad, with --launcher=local.
LAUNCH_TYPES: Mapping[str, type[Engine]] = {'local_mp': Local, 'local_mt': Threads}
