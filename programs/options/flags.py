"""The flags of the programs' options."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from absl import flags

from environments import interpreters, user_file
from programs import registry
from programs.options import suggestions, user_agent
from programs.options.agent_choice import variants
from programs.options.measured import AUTO

# What is wrong with a value, by a part of the message of absl's parsers.
_REASONS = {
  'invalid literal for int()': 'is not a whole number; write it in digits, such as 1000000',
  'could not convert string to float': 'is not a number',
  'Non-boolean argument': 'is neither true nor false',
}

# The programs whose options are flags, and the user's own agents.
_programs: list[str] = []
_agents: list[str] = []


def define(own_program: str = '', own_agent: str = '') -> None:
  """Defines a flag for each option of each program with each of its agents.

  If the user's own program is a Launchpad program without a config, only its options become flags.

  Args:
    own_program: path/to/mine.py:make_program, if given on the command line.
    own_agent: path/to/mine.py:MyAgent, if given on the command line; the options that it adds become
      flags too.

  Raises:
    ValueError: if the program or the agent cannot be loaded, or its options clash with other flags; one
      sentence.
  """
  alone = own_program and not registry.learns(registry.load(own_program))
  programs = [*([] if alone else registry.PROGRAMS), *([own_program] if own_program else [])]
  kinds: dict[type, Callable[..., Any]] = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
    tuple: flags.DEFINE_list,
  }
  fields: dict[str, dict[str, dataclasses.Field]] = {}
  for program in programs:
    for title, field in _fields(program):
      fields.setdefault(field.name, {})[title] = field
      first = next(iter(fields[field.name].values()))
      if field.name in flags.FLAGS or type(field.default) is not type(first.default):
        what = f'parameter {field.name}' if alone else f'option {field.name} of Config'
        raise ValueError(
          f'--program={program}: the {what} clashes with a flag of that name; rename it.'
        )
  for name, by_program in fields.items():
    field = next(iter(by_program.values()))
    define = _define_size if field.metadata.get('measured') else kinds[type(field.default)]
    define(name, None, f'{text(by_program)} ({_defaults(by_program, len(programs))})')
  _programs[:] = programs
  _agents[:] = [own_agent] if own_agent and not alone else []
  for field in _own_options():
    if field.name in flags.FLAGS:
      raise ValueError(
        f'--agent={own_agent}: the option {field.name} of its Config clashes with a flag of that name; '
        'rename it.'
      )
    defaults = _defaults({user_file.title(own_agent): field}, len(programs))
    kinds[type(field.default)](field.name, None, f'{text({own_agent: field})} ({defaults})')


def _own_options() -> Iterator[dataclasses.Field]:
  for agent in _agents:
    yield from user_agent.options(user_agent.read(agent))


class _Size(flags.IntegerParser):
  """Parses a whole number, or AUTO."""

  syntactic_help = 'an integer, or auto'

  def parse(self, argument: Any) -> Any:
    return AUTO if argument == AUTO else super().parse(argument)


def _define_size(name: str, default: Any, help: str) -> None:
  flags.DEFINE(_Size(), name, default, help, serializer=flags.ArgumentSerializer())


def _fields(program: str) -> Iterator[tuple[str, dataclasses.Field]]:
  """Yields the options of a program that have a flag, with the name of the program.

  An option on whose default its agents do not agree comes once for each agent that has it, with the name
  program/agent.
  """
  title, found = user_file.title(program), variants(registry.load(program))
  by_name: dict[str, dict[str, dataclasses.Field]] = {}
  for agent, variant in found.items():
    for field in dataclasses.fields(variant.config):
      if field.metadata.get('flag', True):
        by_name.setdefault(field.name, {})[agent] = field
  for fields in by_name.values():
    agree = len(fields) == len(found) and len({field.default for field in fields.values()}) == 1
    for agent, field in fields.items():
      yield (title if agree else f'{title}/{agent}'), field


def text(
  by_program: Mapping[str, dataclasses.Field],
  shown: Callable[[Sequence[str]], Sequence[str]] = lambda programs: programs,
) -> str:
  """Returns the text of an option; each text comes with its programs if theirs differ.

  Args:
    by_program: the option of each program that has it.
    shown: returns how programs are named.
  """
  programs: dict[str, list[str]] = {}
  for program, field in by_program.items():
    programs.setdefault(field.metadata.get('help', ''), []).append(program)
  if len(programs) == 1:
    return next(iter(programs))
  return ' '.join(f'{", ".join(shown(p))}: {said.rstrip(".")}.' for said, p in programs.items())


def _defaults(by_program: dict[str, dataclasses.Field], num_programs: int) -> str:
  """Describes a flag's default, and the programs that have the flag unless all of them do."""
  shown = {
    program: ','.join(map(str, f.default)) if isinstance(f.default, tuple) else repr(f.default)
    for program, f in by_program.items()
  }
  if len(set(shown.values())) > 1:
    return 'default: ' + ', '.join(f'{value} for {program}' for program, value in shown.items())
  value = next(iter(shown.values()))
  only = '' if len(shown) == num_programs else f'; {", ".join(shown)} only'
  return f'default: {value}{only}'


def parse(words: Sequence[str]) -> list[str]:
  """Parses a command line; returns its words without the flags.

  Raises:
    ValueError: if a flag is unknown or its value is invalid; one sentence.
  """
  try:
    return flags.FLAGS(list(words))
  except flags.UnrecognizedFlagError as error:
    flag = f'--{error.flagname}'
    near = suggestions.did_you_mean(error.flagname, '--')
    raise ValueError(f'{flag} is not a flag{near or "; --helpfull lists all flags."}') from error
  except flags.Error as error:
    flag, _, reason = str(error).removeprefix('flag ').rstrip('.').partition(': ')
    for name, plain in _REASONS.items():
      if name in reason:
        raise ValueError(f'{flag} {plain}.') from error
    raise ValueError(f'{flag}: {reason}.' if reason else f'{flag}.') from error


def parse_or_exit(words: Sequence[str]) -> list[str]:
  """Parses a command line as `parse` does; prints its error, and exits with code 2."""
  try:
    return parse(words)
  except ValueError as error:
    print(f'error: {error}', file=sys.stderr)
    sys.exit(2)


def names() -> set[str]:
  """Returns the names of the config flags."""
  programs = {field.name for program in _programs for _, field in _fields(program)}
  return programs | {field.name for field in _own_options()}


def given() -> dict[str, Any]:
  """Returns the config flags that the user set."""
  found: dict[str, Any] = {
    n: flags.FLAGS[n].value for n in names() if flags.FLAGS[n].value is not None
  }
  if 'actor_python' in found:  # Another directory may resume the run.
    found['actor_python'] = interpreters.absolute(found['actor_python'])
  return found


def refuse_foreign(argv: Sequence[str]) -> None:
  """Rejects options of learning programs for a user's own Launchpad program.

  Args:
    argv: the command line.

  Raises:
    ValueError: if it has such an option; one sentence.
  """
  if not _programs or _programs[0] in registry.PROGRAMS:
    return
  own = [field.name for _, field in _fields(_programs[0])]
  learning = {field.name for program in registry.PROGRAMS for _, field in _fields(program)}
  for word in argv[1 : argv.index('--') if '--' in argv else None]:
    name = word.lstrip('-').partition('=')[0]
    if word.startswith('-') and name in learning and name not in flags.FLAGS:
      raise ValueError(
        f'--{name} is for programs that learn, and {user_file.title(_programs[0])} is a Launchpad '
        f'program of your own; its options are {", ".join(f"--{option}" for option in own)}.'
      )
