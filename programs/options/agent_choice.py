"""The choice between the agents of a program: --agent, and the options that come with each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from agents import options
from environments import errors, user_file
from programs.options import user_agent
from programs.options.common import CommonConfig

# A program that trains an agent.
_PROGRAM_OF = {
  'avril': 'offline',
  'bc': 'offline',
  'muzero': 'muzero',
  'ppo': 'sebulba',
  'pqn': 'sebulba',
  'qt_opt': 'qt_opt',
  'r2d2': 'r2d2',
  'sac': 'sac',
  'vtrace': 'sebulba',
}


class Variant(NamedTuple):
  """A program with one of its agents.

  Attributes:
    defaults: a config, whose groups are those of the program with this agent, and whose values are its
      defaults.
    presets: {family, family:task or '*': {option: value or Rule}}, the preset named `default`.
    named_presets: {name: like `presets`}, for --preset=name.
  """

  defaults: CommonConfig
  presets: Mapping[str, Any]
  named_presets: Mapping[str, Any] = MappingProxyType({})


def variants(module: Any) -> dict[str, Variant]:
  """Returns a program with each of its agents, by name, the default first.

  The name is '' for a user's program whose config names no agent.
  """
  found = getattr(module, 'AGENTS', None)
  if not found:
    only = Variant(module.Config(), module.PRESETS, getattr(module, 'NAMED_PRESETS', {}))
    # A Launchpad program of the user's own has no such config.
    learns = isinstance(only.defaults, CommonConfig)
    return {only.defaults.run.agent if learns else '': only}
  return {
    agent: variant._replace(defaults=options.replace(variant.defaults, agent=agent))
    for agent, variant in found.items()
  }


def chosen(module: Any, values: dict[str, Any]) -> tuple[str, Variant]:
  """Returns the agent that the flags choose, and the program with it.

  A user's own agent counts as the one that it derives from, with further options.

  Args:
    module: the program's module.
    values: flag name to value.

  Raises:
    ValueError: the program has no such agent, or the agent has no such option; one sentence.
  """
  agent, found = _found(module, values.get('agent'))
  if agent not in found:
    there = f'; there are: {", ".join(found)}, and path/to/mine.py:MyAgent.'
    if program := _PROGRAM_OF.get(agent):
      raise ValueError(
        f'--agent={agent} is not trained by this program, but by --program={program}; use that{there}'
      )
    raise ValueError(
      f'--agent={agent} is unknown to this program{errors.did_you_mean(agent, found) or there}'
    )
  names = {name: options.flatten(variant.defaults).keys() for name, variant in found.items()}
  for name in values.keys() - names[agent]:
    elsewhere = any(name in others for others in names.values())
    whose = f'--agent={agent}' if elsewhere else 'this program'
    raise ValueError(f'--{name} is not an option of {whose}; leave it out.')
  return agent, found[agent]


def variant(module: Any, agent: str) -> Variant:
  """Returns a program with an agent, also a user's own; with its default for an unknown one.

  Raises:
    ValueError: the user's own cannot be used here; one sentence.
  """
  agent, found = _found(module, agent)
  return found.get(agent, next(iter(found.values())))


def _found(module: Any, agent: str | None) -> tuple[str, dict[str, Variant]]:
  """Returns the name of an agent, and the program with each of its agents.

  A user's own counts as the one that it derives from, and has its place. None stands for the first. A
  program that names no agent has only ''.
  """
  found = variants(module)
  if '' in found:
    return '', found
  if agent is None:
    return next(iter(found)), found
  return _with_own(found, user_agent.read(agent)) if user_file.is_spec(agent) else (agent, found)


def _with_own(found: dict[str, Variant], own: user_file.Named) -> tuple[str, dict[str, Variant]]:
  """Returns the agent that a user's own derives from, and `found` with the user's own in its place."""
  base = user_agent.described(own).base
  if base not in found:
    raise ValueError(
      f'--agent={own} derives from {base}, and this program trains {" or ".join(found)}; derive it from '
      f'that, or use --program={_PROGRAM_OF.get(base, base)}.'
    )
  variant = found[base]
  return base, found | {base: variant._replace(defaults=user_agent.with_own(variant.defaults, own))}


def variant_of(module: Any, config: CommonConfig) -> Variant:
  """Returns the program with the agent of a resolved config."""
  return chosen(module, {'agent': config.run.agent})[1]


def name_of(module: Any, config: CommonConfig) -> str:
  """Returns the agent of a resolved config; of a user's own, the one that it derives from."""
  return chosen(module, {'agent': config.run.agent})[0]


def recorded(module: Any, record: dict[str, Any], changes: dict[str, Any]) -> dict[str, str]:
  """Returns the flag of a recorded run's agent, {'agent': name}; {} for a program that names none.

  A run that was recorded before the program had the option trained its first agent.

  Args:
    module: the program's module.
    record: option name to recorded value.
    changes: the flags of the command that resumes the run.

  Raises:
    ValueError: they name another agent; one sentence.
  """
  default = next(iter(variants(module)))
  if not default:
    return {}
  agent = record.get('agent') or default
  if user_file.absolute(changes.get('agent', agent)) != agent:
    raise ValueError(
      f'--agent={changes["agent"]} cannot change when a run is resumed, where it was {agent!r}; '
      'leave it out, or start a new run, with the parameters of this one by --init_from.'
    )
  return {'agent': agent}
