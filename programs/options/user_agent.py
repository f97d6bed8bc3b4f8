"""An agent of the user's own: --agent=path/to/mine.py:MyAgent.

Its class derives from an agent of this repository. A program takes it where it takes that one, with the
same presets, and with the options that the class adds in its `Config`. launch.py imports no JAX, so a
process of its own reads the class.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any, NamedTuple

from agents import options
from environments import separate_process, user_file
from environments.user_file import Named
from launchers.options import DEFINE
from programs.options.common import CommonConfig

_MODULE = re.compile(r'agents\.(\w+)\.agent')


class Described(NamedTuple):
  """What a program needs to know of a user's agent.

  Attributes:
    base: name of the agent of this repository that it derives from, such as vtrace.
    action_kinds: those that it takes; see `agents.networks.config`.
    tunable: the options that may change while it learns; see `agents.optimizer_config`.
    added: the options that only its own `Config` has, as (name, default, metadata).
    changed: those that it shares with the base, with another default.
  """

  base: str
  action_kinds: tuple[str, ...]
  tunable: tuple[str, ...]
  added: tuple[tuple[str, Any, dict[str, Any]], ...]
  changed: tuple[tuple[str, Any, dict[str, Any]], ...]


def named(config: Any) -> str:
  """Returns the value of --agent if it names a user's file; else ''."""
  return config.run.agent if user_file.is_spec(config.run.agent) else ''


def read(spec: str) -> Named:
  """Returns the class that a value of --agent names, with its file's source.

  Raises:
    ValueError: the file cannot be read, or the flag has more than its name; one sentence.
  """
  return user_file.of_flag('agent', spec, 'an agent')


@functools.cache
def described(own: Named) -> Described:
  """Reads a user's agent in a process of its own.

  Raises:
    ValueError: it is no agent that a program can take; one sentence.
  """
  found: Described = separate_process.call(
    'programs.options.user_agent:describe', own, flag=f'--agent={own}'
  )
  return found


def with_own(defaults: CommonConfig, own: Named) -> CommonConfig:
  """Returns the default config of a program with a user's agent.

  Args:
    defaults: that with the agent from which it derives.
    own: the agent's class.

  Raises:
    ValueError: an option of the agent has the name of one of the program's; one sentence.
  """
  *_, added, changed = described(own)
  known = options.flatten(defaults)
  for name, *_ in added:
    if name in known:
      raise ValueError(
        f'--agent={own}: its Config adds the option {name}, which the program has already; rename it.'
      )
  kept = {f.name: getattr(defaults.agent, f.name) for f in dataclasses.fields(defaults.agent)}
  values = kept | {name: default for name, default, _ in (*changed, *added)}
  run = dataclasses.replace(defaults.run, agent=str(own))
  group = _config_class(type(defaults.agent), own)  # type: ignore[arg-type]
  return dataclasses.replace(defaults, run=run, agent=group(**values))


@functools.cache
def _config_class(base: Any, own: Named) -> Any:
  """Returns the class of the options of a user's agent, which this process makes without JAX."""
  found = described(own)
  kinds = {'action_kinds': found.action_kinds, 'tunable': found.tunable}
  return dataclasses.make_dataclass(
    base.__name__, _fields(found.added), bases=(base,), namespace=kinds, frozen=True
  )


def _fields(found: Any) -> list[tuple[str, type, Any]]:
  return [
    (name, type(default), dataclasses.field(default=default, metadata=metadata))
    for name, default, metadata in found
  ]


def describe(own: Named) -> Described:
  """Describes a user's agent; imports JAX.

  Raises:
    ValueError: as `described` does.
  """
  from agents.agent import Agent

  flag = f'--agent={own}'
  agent: Any = load(own)
  if not (isinstance(agent, type) and issubclass(agent, Agent)):
    raise ValueError(
      f'{flag} is no agent; derive it from one of this repository, such as agents.vtrace.agent.VTrace.'
    )
  classes: list[Any] = [*agent.__mro__]
  bases = [(base, _MODULE.fullmatch(base.__module__)) for base in classes]
  found = next(
    ((base, match[1]) for base, match in bases if match and 'Config' in vars(base)), None
  )
  if found is None:
    raise ValueError(
      f'{flag} derives from no agent of this repository, so its options and presets are unknown; derive '
      'it from one, such as agents.vtrace.agent.VTrace, or write a program that builds it.'
    )
  base, name = found
  config: Any = classes[0].Config
  derives = isinstance(config, type) and issubclass(config, base.Config)
  if not derives:
    raise ValueError(f'{flag}: derive its Config from {base.__name__}.Config.')
  if '__dataclass_fields__' not in vars(config):
    raise ValueError(f'{flag}: write @dataclasses.dataclass(frozen=True) above its Config.')
  known = {field.name: field for field in dataclasses.fields(base.Config)}
  added, changed = [], []
  for field in dataclasses.fields(config):
    before = known.get(field.name)
    if type(field.default) not in DEFINE:
      raise ValueError(
        f'{flag}: the option {field.name} of its Config needs a default of a flag type: bool, int, '
        'float, string or tuple of ints.'
      )
    if before is None:
      added.append((field.name, field.default, dict(field.metadata)))
    elif field.default != before.default:
      changed.append((field.name, field.default, dict(field.metadata or before.metadata)))
  return Described(name, config.action_kinds, config.tunable, tuple(added), tuple(changed))


def load(own: Named) -> Any:
  """Returns the class of a user's agent; imports JAX.

  Raises:
    ValueError: the file cannot be imported or does not define it; one sentence.
  """
  with user_file.named_by('agent'):
    return own.load()


def check_options(own: Named, config: Any) -> None:
  """Checks the options of a user's agent by its own `Config`; imports JAX.

  Args:
    own: its class.
    config: of the program.

  Raises:
    ValueError: they do not fit together; one sentence.
  """
  _own_config(load(own), config.agent).validate()


def make(own: Named, group: Any, observation_spec: Any, action_spec: Any) -> Any:
  """Returns a user's agent, which gets an instance of its own `Config`.

  Args:
    own: its class.
    group: its options, as `with_own` makes them.
    observation_spec: of one observation.
    action_spec: of one action.
  """
  agent = load(own)
  return agent(_own_config(agent, group), observation_spec, action_spec)


def _own_config(agent: Any, group: Any) -> Any:
  fields = dataclasses.fields(agent.Config)
  return agent.Config(**{field.name: getattr(group, field.name) for field in fields})
