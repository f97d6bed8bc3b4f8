"""The built-in programs of launch.py, by name."""

from __future__ import annotations

import importlib
from typing import Any

from environments import own_file
from programs.own_program import OwnProgram

# A program is a module with these attributes (`OwnProgram` provides them for a user's own file):
#   Config: a frozen dataclass.
#   AGENTS: {name: Variant}, for a program that can train several agents; see `programs.options.agents`.
#     The first is the default, of which `Config` and `PRESETS` are.
#   make_agent(config): returns the agent's constructor: it takes the specs of observations and actions.
#   make_program(config) -> lp.Program
#   placement(config) -> {group: Resources}
#   PRESETS: {family, family:task or '*': {option: value or Rule}}, the preset named 'default'
#   NAMED_PRESETS: {name: like PRESETS}, for --preset=name; may be missing
#   environments: has `check(name, options)` and `families()` like `environments.registry`, and
#     `make_spec(name, options)` if the agent takes no continuous actions.
PROGRAMS = {
  'anakin': 'programs.anakin',
  'impala': 'programs.impala',
  'r2d2': 'programs.r2d2',
  'sebulba': 'programs.sebulba',
}


def load(name: str) -> Any:
  """Returns the module of a program, or an `OwnProgram` for path/to/mine.py:make_program.

  Raises:
    ValueError: if the name is unknown, or the user's file is unusable; one sentence.
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
