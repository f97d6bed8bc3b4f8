"""The flags of the programs' options."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from absl import flags

from programs import registry


def define() -> None:
  """Defines a flag for each field of each program's config."""
  define: dict[type, Callable[..., Any]] = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
    tuple: flags.DEFINE_list,
  }
  fields: dict[str, dict[str, dataclasses.Field]] = {}
  for program in registry.PROGRAMS:
    for field in dataclasses.fields(registry.load(program).Config):
      fields.setdefault(field.name, {})[program] = field
  for name, by_program in fields.items():
    field = next(iter(by_program.values()))
    define[type(field.default)](name, None, f'{field.metadata["help"]} ({_defaults(by_program)})')


def _defaults(by_program: dict[str, dataclasses.Field]) -> str:
  """Says what a flag's default is, and which programs have the flag if not all of them do."""
  shown = {
    program: ','.join(map(str, f.default)) if isinstance(f.default, tuple) else repr(f.default)
    for program, f in by_program.items()
  }
  if len(set(shown.values())) > 1:
    return 'default: ' + ', '.join(f'{value} for {program}' for program, value in shown.items())
  value = next(iter(shown.values()))
  only = '' if len(shown) == len(registry.PROGRAMS) else f'; {", ".join(shown)} only'
  return f'default: {value}{only}'


def given() -> dict[str, Any]:
  """Returns the config flags that the user set."""
  names = {
    field.name
    for program in registry.PROGRAMS
    for field in dataclasses.fields(registry.load(program).Config)
  }
  return {n: flags.FLAGS[n].value for n in names if flags.FLAGS[n].value is not None}
