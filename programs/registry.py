"""The programs that launch.py knows by name."""

from __future__ import annotations

import importlib
from types import ModuleType

# A program is a module with a frozen dataclass `Config`; `make_agent(config)`, which returns what takes
# the specs of observations and actions and returns the agent; `make_program(config) -> lp.Program`;
# `placement(config) -> {group: Resources}`; `PRESETS`: {family of environments: {option: value}}; and
# `environments`, with `check(name, options)` and `families()`, as `environments.registry` has them.
PROGRAMS = {
  'anakin': 'programs.anakin',
  'r2d2': 'programs.r2d2',
  'sebulba': 'programs.sebulba',
}


def load(name: str) -> ModuleType:
  """Returns the module of a program.

  Raises:
    ValueError: if there is none of that name.
  """
  if name not in PROGRAMS:
    raise ValueError(f'--program={name} is unknown; there are: {", ".join(sorted(PROGRAMS))}.')
  return importlib.import_module(PROGRAMS[name])
