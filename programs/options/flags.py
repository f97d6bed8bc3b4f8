"""The flags of the options of a program: those of the one that is launched, with its agent."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from absl import flags

from agents import options
from agents.options import Leaf
from environments import interpreters, user_file
from launchers.options import DEFINE
from programs import registry
from programs.options import agent_choice, suggestions
from programs.options.agent_choice import variants

# What is wrong with a value, by a part of the message of absl's parsers.
_REASONS = {
  'invalid literal for int()': 'is not a whole number; write it in digits, such as 1000000',
  'could not convert string to float': 'is not a number',
  'Non-boolean argument': 'is neither true nor false',
}


class Defined(NamedTuple):
  """The options that are flags.

  Attributes:
    program, agent: whose they are; '' for those of every program, or of each of its agents.
    leaves: the options by name.
  """

  program: str
  agent: str
  leaves: Mapping[str, Leaf]


_defined = Defined('', '', {})


def define(program: str = '', agent: str = '', every_agent: bool = False) -> Defined:
  """Defines a flag for each option of a program with one of its agents, in place of earlier ones.

  Args:
    program: its name; '' for every program of this repository, with each of its agents, for commands
      that are not about one of them.
    agent: value of --agent; '' for the program's default.
    every_agent: whether to define the options of each of its agents, for a command that runs several.

  Raises:
    ValueError: if the program cannot be loaded, or its options clash with other flags; one sentence.
  """
  global _defined
  for name in _defined.leaves:
    delattr(flags.FLAGS, name)
  _defined = Defined(program, agent, {})
  programs = [program] if program else registry.PROGRAMS
  found: dict[str, Leaf] = {}
  for each in programs:
    agents = [agent] if program and not every_agent else variants(registry.load(each))
    for leaves in (_leaves(each, name) for name in agents):
      found = leaves | found  # The default of the first that has it.
  for name in found:
    if name in flags.FLAGS:
      raise _clash(program, name, agent)
  for name, leaf in found.items():
    shown = ','.join(map(str, leaf.value)) if isinstance(leaf.value, tuple) else repr(leaf.value)
    DEFINE[type(leaf.value)](name, None, f'{leaf.help} (default: {shown})')
  _defined = Defined(program, agent, found)
  return _defined


def _leaves(program: str, agent: str) -> dict[str, Leaf]:
  """Returns the options of a program with one of its agents that have a flag, by name.

  Raises:
    ValueError: two of them have the same name; one sentence.
  """
  # An unknown agent is refused with those that there are, once the other flags are read.
  chosen = agent_choice.variant(registry.load(program), agent)
  found: dict[str, Leaf] = {}
  for leaf in options.leaves(chosen.defaults):
    if leaf.name in found:
      raise _clash(program, leaf.name)
    if leaf.flag and leaf[:3] != ('run', 'agent', ''):
      found[leaf.name] = leaf
  return found


def _clash(program: str, name: str, agent: str = '') -> ValueError:
  if user_file.is_spec(agent) and name not in _leaves(program, ''):
    return ValueError(
      f'--agent={agent}: the option {name} of its Config clashes with a flag of that name; rename it.'
    )
  learns = registry.learns(registry.load(program))
  what = f'option {name} of Config' if learns else f'parameter {name}'
  return ValueError(f'--program={program}: the {what} clashes with a flag of that name; rename it.')


def parse(words: Sequence[str]) -> list[str]:
  """Parses a command line; returns its words without the flags.

  Raises:
    ValueError: if a flag is unknown or its value is invalid; one sentence.
  """
  try:
    return flags.FLAGS(list(words))
  except flags.UnrecognizedFlagError as error:
    raise ValueError(unknown(error.flagname)) from error
  except flags.Error as error:
    flag, _, reason = str(error).removeprefix('flag ').rstrip('.').partition(': ')
    for name, plain in _REASONS.items():
      if name in reason:
        raise ValueError(f'{flag} {plain}.') from error
    raise ValueError(f'{flag}: {reason}.' if reason else f'{flag}.') from error


def unknown(name: str) -> str:
  """Returns a sentence on a flag that is not defined: which programs have it, or what is meant."""
  flag, option = f'--{name}', name.removeprefix('no') if name.startswith('no') else name
  elsewhere = _programs_with(name) or _programs_with(option)
  if not elsewhere or not _defined.program:
    near = suggestions.did_you_mean(name, '--', _every_option())
    return f'{flag} is not a flag{near or "; --helpfull lists all flags."}'
  if not registry.learns(registry.load(_defined.program)):
    own = ', '.join(f'--{option}' for option in _defined.leaves)
    return (
      f'{flag} is for programs that learn, and {user_file.title(_defined.program)} is a Launchpad '
      f'program of your own; its options are {own}.'
    )
  title = user_file.title(_defined.program)
  agents = [agent for program, agent in elsewhere if program == title]
  if agents:
    return (
      f'{flag} is not an option of --agent={_agent()}; leave it out. It is one of '
      f'--agent={" and ".join(agents)}.'
    )
  programs = ', '.join(dict.fromkeys(program for program, _ in elsewhere))
  return (
    f'{flag} is not an option of this program; leave it out. It is one of --program={programs}.'
  )


def has_elsewhere(name: str) -> bool:
  """Returns whether a flag that is not defined is an option of another program or agent."""
  return bool(_defined.program and _programs_with(name))


def _agent() -> str:
  found = _defined.leaves.get('agent')
  return str(found.value) if found else ''


def _programs_with(option: str) -> list[tuple[str, str]]:
  """Returns the programs, and their agents, that have an option."""
  names = dict.fromkeys([*([_defined.program] if _defined.program else []), *registry.PROGRAMS])
  return [
    (user_file.title(program), agent)
    for program in names
    for agent in variants(registry.load(program))
    if option in _leaves(program, agent)
  ]


def _every_option() -> Iterator[str]:
  for program in registry.PROGRAMS:
    for agent in variants(registry.load(program)):
      yield from _leaves(program, agent)


def parse_or_exit(words: Sequence[str]) -> list[str]:
  """Parses a command line as `parse` does; prints its error, and exits with code 2."""
  try:
    return parse(words)
  except ValueError as error:
    print(f'error: {error}', file=sys.stderr)
    sys.exit(2)


def names() -> set[str]:
  """Returns the names of the config flags."""
  return set(_defined.leaves)


def given() -> dict[str, Any]:
  """Returns the config flags that the user set."""
  found: dict[str, Any] = {
    n: flags.FLAGS[n].value for n in _defined.leaves if flags.FLAGS[n].value is not None
  }
  if 'actor_python' in found:  # Another directory may resume the run.
    found['actor_python'] = interpreters.absolute(found['actor_python'])
  return found
