"""The table of engines. A new engine is a folder with a `launcher.Launcher`, and a line here."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from absl import flags

import launchers.k8s.engine
import launchers.local.engine
import launchers.ray.engine
import launchers.slurm.engine
from launchers.launcher import Launcher

TABLE: Mapping[str, Launcher] = {
  'local': launchers.local.engine.Local(),
  'ray': launchers.ray.engine.Ray(),
  'slurm': launchers.slurm.engine.Slurm(),
  'k8s': launchers.k8s.engine.Kubernetes(),
  'pod': launchers.k8s.engine.Pod(),
}

for _engine in TABLE.values():  # So that a module that adopts the flags of this one has them all.
  flags.adopt_module_key_flags(sys.modules[type(_engine).__module__])
_LAUNCHER = flags.DEFINE_enum(
  'launcher',
  'local',
  [*TABLE],
  'where it runs: on this machine; on a Ray cluster; as a Slurm job; on Kubernetes, for which files '
  'are written; in this pod, as those files say',
)


def chosen() -> Launcher:
  """Returns the engine of the flag.

  Raises:
    ValueError: if a flag of the local engine is given with another; one sentence.
  """
  if _LAUNCHER.value != 'local':
    launchers.local.engine.refuse_flags(_LAUNCHER.value)
  return TABLE[_LAUNCHER.value]
