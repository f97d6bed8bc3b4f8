"""The flags of the programs' options."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from absl import flags

from environments import own_file
from programs import registry
from programs.options.agents import variants

_own: list[str] = []  # The user's own program, if any; its options are flags too.


def define(own_program: str = '') -> None:
  """Defines a flag for each option of each program with each of its agents.

  Args:
    own_program: path/to/mine.py:make_program, if given on the command line.

  Raises:
    ValueError: if the program cannot be loaded, or its options clash with other flags; one sentence.
  """
  _own[:] = [own_program] if own_program else []
  define: dict[type, Callable[..., Any]] = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
    tuple: flags.DEFINE_list,
  }
  fields: dict[str, dict[str, dataclasses.Field]] = {}
  for program in (*registry.PROGRAMS, *_own):
    for title, field in _fields(program):
      fields.setdefault(field.name, {})[title] = field
      first = next(iter(fields[field.name].values()))
      if field.name in flags.FLAGS or type(field.default) is not type(first.default):
        raise ValueError(
          f'--program={program}: the option {field.name} of Config clashes with a flag of that name; '
          'rename it.'
        )
  for name, by_program in fields.items():
    field = next(iter(by_program.values()))
    define[type(field.default)](
      name, None, f'{field.metadata.get("help", "")} ({_defaults(by_program)})'
    )


def _fields(program: str) -> Iterator[tuple[str, dataclasses.Field]]:
  """Yields the options of a program that have a flag, with the name of the program.

  An option on whose default its agents do not agree comes once for each agent that has it, with the name
  program/agent.
  """
  title, found = own_file.title(program), variants(registry.load(program))
  by_name: dict[str, dict[str, dataclasses.Field]] = {}
  for agent, variant in found.items():
    for field in dataclasses.fields(variant.config):
      if field.metadata.get('flag', True):
        by_name.setdefault(field.name, {})[agent] = field
  for fields in by_name.values():
    agree = len(fields) == len(found) and len({field.default for field in fields.values()}) == 1
    for agent, field in fields.items():
      yield (title if agree else f'{title}/{agent}'), field


def _defaults(by_program: dict[str, dataclasses.Field]) -> str:
  """Describes a flag's default, and the programs that have the flag unless all of them do."""
  shown = {
    program: ','.join(map(str, f.default)) if isinstance(f.default, tuple) else repr(f.default)
    for program, f in by_program.items()
  }
  if len(set(shown.values())) > 1:
    return 'default: ' + ', '.join(f'{value} for {program}' for program, value in shown.items())
  value = next(iter(shown.values()))
  all_programs = len(registry.PROGRAMS) + len(_own)
  only = '' if len(shown) == all_programs else f'; {", ".join(shown)} only'
  return f'default: {value}{only}'


def given() -> dict[str, Any]:
  """Returns the config flags that the user set."""
  names = {field.name for program in (*registry.PROGRAMS, *_own) for _, field in _fields(program)}
  return {n: flags.FLAGS[n].value for n in names if flags.FLAGS[n].value is not None}
