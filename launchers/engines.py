"""The table of engines. To add one, write a folder with an `engine.Engine` and add a line here."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from absl import flags

import launchers.k8s.engine
import launchers.local.engine
import launchers.ray.engine
import launchers.slurm.engine
from launchers.engine import Engine

TABLE: Mapping[str, Engine] = {
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


def chosen() -> Engine:
  """Returns the engine that --launcher selects.

  Raises:
    ValueError: if a flag of another engine is given; one sentence.
  """
  name = _LAUNCHER.value
  if name != 'local':
    launchers.local.engine.refuse_flags(name)
  own = _flags_of(name)
  for other in filter('local'.__ne__, TABLE):
    for flag in sorted(_flags_of(other) - own):
      if flags.FLAGS[flag].present:
        raise ValueError(
          f'--{flag} is for --launcher={other}; leave it out with --launcher={name}.'
        )
  return TABLE[name]


def given_flags(*others: str) -> list[str]:
  """Returns --launcher, the flags of the chosen engine and some others, as far as they are given."""
  own = sorted(_flags_of(_LAUNCHER.value))
  names = [_LAUNCHER.name, *own, *launchers.local.engine.FOREIGN_FLAGS, *others]
  return [flags.FLAGS[n].serialize() for n in names if flags.FLAGS[n].present]


def _flags_of(name: str) -> set[str]:
  """Returns the names of the flags that an engine defines."""
  defined = flags.FLAGS.flags_by_module_dict()
  return {flag.name for flag in defined.get(type(TABLE[name]).__module__, ())}
