"""The choice between the agents of a program: --agent, and the options that come with each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from agents.intrinsic_rewards.config import IntrinsicRewardsConfig
from agents.muzero.config import MuZeroConfig
from agents.options import CheckedOptions, option, with_default
from agents.ppo.config import PPOConfig
from agents.qt_opt.config import QTOptConfig
from agents.r2d2.config import R2D2Config
from agents.vtrace.config import VTraceConfig
from environments import user_file
from programs.options import user_agent
from programs.options.actors import ActorsConfig
from programs.options.compiled_loop import CompiledLoopConfig

# A program with an agent, where the agent is that of --agent's default in another program.
_PROGRAM_OF = {'ppo': 'sebulba', 'vtrace': 'sebulba'}


class Variant(NamedTuple):
  """A program with one of its agents.

  Attributes:
    config: the class of its options.
    presets: {family, family:task or '*': {option: value or Rule}}, the preset named `default`.
    named_presets: {name: like `presets`}, for --preset=name.
  """

  config: Any
  presets: Mapping[str, Any]
  named_presets: Mapping[str, Any] = MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class AgentConfig(CheckedOptions):
  """The agent of a program; each has options of its own."""

  agent: str = option(
    'vtrace',
    'learning algorithm: sebulba, impala and anakin have vtrace and ppo, anakin also muzero and r2d2, '
    'other programs one; or path/to/mine.py:MyAgent, which derives from one that the program has',
  )

  def _check(self) -> None:
    (own,) = (field.default for field in dataclasses.fields(self) if field.name == 'agent')
    if self.agent != own:
      raise ValueError(f'--agent is {self.agent!r}: set it to {own}, or leave it out.')


@dataclasses.dataclass(frozen=True)
class WithVTrace(AgentConfig, VTraceConfig):
  """Options of programs that train V-trace."""


@dataclasses.dataclass(frozen=True)
class WithPPO(AgentConfig, PPOConfig):
  """Options of programs that train PPO."""

  agent: str = with_default(AgentConfig, 'agent', 'ppo')

  def _check(self) -> None:
    if isinstance(self, CompiledLoopConfig):
      flag, unrolls, devices = 'num_envs', self.num_envs, self.known_devices
    elif isinstance(self, ActorsConfig):
      flag, unrolls, devices = 'batch_size', self.batch_size, max(len(self.learner_devices), 1)
    else:
      return
    samples = unrolls * (self.unroll_length if self.minibatch_of == 'transitions' else 1)
    if samples % (devices * self.num_minibatches):
      raise ValueError(
        f'--num_minibatches={self.num_minibatches} does not divide the {samples} {self.minibatch_of} of '
        f'--{flag}={unrolls} on {devices} learner device(s) equally; change one of them.'
      )
    transitions = unrolls * self.unroll_length // self.num_minibatches
    if self.normalize_advantages and transitions == 1:
      raise ValueError(
        f'--num_minibatches={self.num_minibatches} leaves one transition in each minibatch, whose '
        'normalised advantage is 0; lower it, or add --nonormalize_advantages.'
      )


@dataclasses.dataclass(frozen=True)
class WithMuZero(AgentConfig, MuZeroConfig):
  """Options of programs that train MuZero."""

  agent: str = with_default(AgentConfig, 'agent', 'muzero')


@dataclasses.dataclass(frozen=True)
class WithR2D2(AgentConfig, R2D2Config):
  """Options of programs that train R2D2."""

  agent: str = with_default(AgentConfig, 'agent', 'r2d2')


@dataclasses.dataclass(frozen=True)
class WithQTOpt(AgentConfig, QTOptConfig):
  """Options of programs that train QT-Opt."""

  agent: str = with_default(AgentConfig, 'agent', 'qt_opt')


@dataclasses.dataclass(frozen=True)
class WithIntrinsicRewards(AgentConfig, IntrinsicRewardsConfig):
  """Options of programs that learn intrinsic rewards."""

  agent: str = with_default(AgentConfig, 'agent', 'intrinsic_rewards')


def variants(module: Any) -> dict[str, Variant]:
  """Returns a program with each of its agents, by name, the default first.

  The name is '' for a user's program without the option `agent`.
  """
  found = getattr(module, 'AGENTS', None)
  if found:
    return dict(found)
  agents = [field.default for field in dataclasses.fields(module.Config) if field.name == 'agent']
  only = Variant(module.Config, module.PRESETS, getattr(module, 'NAMED_PRESETS', {}))
  return {agents[0] if agents else '': only}


def chosen(module: Any, values: dict[str, Any]) -> tuple[str, Variant]:
  """Returns the agent that the flags choose, and the program with it.

  A user's own agent counts as the one that it derives from, with further options.

  Args:
    module: the program's module.
    values: flag name to value.

  Raises:
    ValueError: the program has no such agent, or the agent has no such option; one sentence.
  """
  found = variants(module)
  default = next(iter(found))
  agent = values.get('agent', default) if default else default
  if default and user_file.is_spec(agent):
    agent, found = _with_own(found, user_agent.read(agent))
  if agent not in found:
    raise ValueError(
      f'--agent={agent} is unknown to this program; there are: {", ".join(found)}, and '
      'path/to/mine.py:MyAgent.'
    )
  names = {name: _options(variant) for name, variant in found.items()}
  for name in values.keys() - names[agent]:
    elsewhere = any(name in others for others in names.values())
    whose = f'--agent={agent}' if elsewhere else 'this program'
    raise ValueError(
      f'--{name} is not an option of {whose}; leave it out. --help says which programs have it.'
    )
  return agent, found[agent]


def _with_own(found: dict[str, Variant], own: user_file.Named) -> tuple[str, dict[str, Variant]]:
  """Returns the agent that a user's own derives from, and `found` with the user's own in its place."""
  base = user_agent.described(own).base
  if base not in found:
    raise ValueError(
      f'--agent={own} derives from {base}, and this program trains {" or ".join(found)}; derive it from '
      f'that, or use --program={_PROGRAM_OF.get(base, base)}.'
    )
  variant = found[base]
  return base, found | {base: variant._replace(config=user_agent.config_class(variant.config, own))}


def variant_of(module: Any, config: Any) -> Variant:
  """Returns the program with the agent of a resolved config."""
  return chosen(module, {'agent': config.agent} if hasattr(config, 'agent') else {})[1]


def name_of(module: Any, config: Any) -> str:
  """Returns the agent of a resolved config; of a user's own, the one that it derives from."""
  return chosen(module, {'agent': config.agent} if hasattr(config, 'agent') else {})[0]


def recorded(module: Any, record: dict[str, Any], changes: dict[str, Any]) -> dict[str, str]:
  """Returns the flag of a recorded run's agent, {'agent': name}; {} for a program without that option.

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
  agent = record.get('agent', default)
  if user_file.absolute(changes.get('agent', agent)) != agent:
    raise ValueError(
      f'--agent={changes["agent"]} cannot change when a run is resumed, where it was {agent!r}; '
      'leave it out, or start a new run.'
    )
  return {'agent': agent}


def _options(variant: Variant) -> set[str]:
  return {field.name for field in dataclasses.fields(variant.config)}
