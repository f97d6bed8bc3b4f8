"""The table of engines. To add one, write a folder with a `launcher.Launcher` and add a line here."""

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

for _engine in TABLE.values():  # So that --help and flag adoption include them.
  flags.adopt_module_key_flags(sys.modules[type(_engine).__module__])
_LAUNCHER = flags.DEFINE_enum(
  'launcher',
  'local',
  [*TABLE],
  'where the program runs: local: this machine; ray: a Ray cluster; slurm: a Slurm job; k8s: writes '
  'Kubernetes manifests; pod: one node in this pod, used by those manifests',
)


def chosen() -> Launcher:
  """Returns the engine that --launcher selects.

  Raises:
    ValueError: if a flag of the local engine is given with another engine; one sentence.
  """
  if _LAUNCHER.value != 'local':
    launchers.local.engine.refuse_flags(_LAUNCHER.value)
  return TABLE[_LAUNCHER.value]
