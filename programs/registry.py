"""The programs that launch.py knows by name."""

from __future__ import annotations

import importlib
from typing import Any

from environments import own_file
from programs.own_program import OwnProgram

# A program is a module with a frozen dataclass `Config`; `make_agent(config)`, which returns what takes
# the specs of observations and actions and returns the agent; `make_program(config) -> lp.Program`;
# `placement(config) -> {group: Resources}`; `PRESETS`: {family, or family:task: {option: value}}; and
# `environments`, with `check(name, options)` and `families()`, as `environments.registry` has them, and
# `make_spec(name, options)` where the agent takes no continuous actions.
# `OwnProgram` makes one of a user's own file.
PROGRAMS = {
  'anakin': 'programs.anakin',
  'impala': 'programs.impala',
  'r2d2': 'programs.r2d2',
  'sebulba': 'programs.sebulba',
}


def load(name: str) -> Any:
  """Returns the module of a program, or what stands for that of path/to/mine.py:make_program.

  Raises:
    ValueError: if there is none of that name, or the user's file is of no use; one sentence.
  """
  if own_file.is_spec(name):
    try:
      return OwnProgram(own_file.named(name))
    except ValueError as error:
      raise ValueError(f'--program={error}') from error
  if name not in PROGRAMS:
    raise ValueError(
      f'--program={name} is unknown; there are: {", ".join(sorted(PROGRAMS))}, and '
      'path/to/mine.py:make_program.'
    )
  return importlib.import_module(PROGRAMS[name])
