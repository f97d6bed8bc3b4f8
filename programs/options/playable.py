"""Whether the agent of a run can play its environment, before anything starts."""

from __future__ import annotations

from typing import Any

from acme import specs

from agents import options, spaces
from agents.networks import choice
from environments import either, jax_registry, registry
from launchers import own_python, streams
from programs.options import agent_choice

# The nodes that play an environment without JAX, and what records it.
_PLAYERS = 'nodes.actor', 'nodes.evaluator', 'nodes.evaluation.remote'
_RECORDER = 'environments.video'
NOTICE_SECONDS = 10.0  # After them, launch.py says that it is making the environment.
# A program that takes all kinds of actions, by the registry of environments.
_ANY_ACTIONS = {registry: 'sebulba', jax_registry: 'anakin'}


def check(module: Any, config: Any) -> specs.EnvironmentSpec:
  """Checks an environment, and that the agent takes its actions and observations; returns its spec.

  Args:
    module: the program's module.
    config: the options of the run. Without those of an agent, only the environment is checked.

  Raises:
    ValueError: one sentence that names the flag and the fix.
  """
  notice = f'still making and trying --env={config.run.env}, after {NOTICE_SECONDS:.0f} s'
  with streams.announced_if_slow(notice, NOTICE_SECONDS):
    found = spec(module, config)
  kinds = getattr(config.agent, 'action_kinds', None)
  if kinds is None:
    return found
  try:
    kind = spaces.kind(found.actions)
    spaces.check_mask(found.observations, found.actions)
  except ValueError as error:
    raise ValueError(f'--env={config.run.env}: {error}') from error
  if kind not in kinds:
    agent = f'--agent={config.run.agent}' if config.run.agent else "this program's agent"
    raise ValueError(
      f'--env={config.run.env} has {spaces.KINDS[kind]}, and {agent} takes {spaces.names(kinds)}: use '
      f'{_others(module, kind)}an environment with {spaces.names(kinds)}.'
    )
  spaces.check_normalization(config.agent, found.observations)
  choice.check(config.agent, found.observations)
  if check_spec := getattr(module, 'check_spec', None):
    check_spec(config.run.env, found)
  return found


def spec(module: Any, config: Any) -> specs.EnvironmentSpec:
  """Returns the spec of one environment, which the interpreter that will play it has tried.

  Args:
    module: the program's module.
    config: the options of the run.

  Raises:
    ValueError: the interpreter or the environment cannot be used; one sentence.
  """
  elsewhere = {}  # Environments written in JAX are never played by another interpreter.
  if python := options.value(config, 'actor_python', ''):
    modules = (*_PLAYERS, _RECORDER) if config.evaluation.video_period else _PLAYERS
    own_python.check(python, modules, '--actor_python')
    elsewhere['python'] = python
  found: specs.EnvironmentSpec = module.environments.check(
    config.run.env, config.run.env_options, **elsewhere
  )
  return found


def _others(module: Any, kind: str) -> str:
  """Returns the flag of agents that take a kind of actions, and 'or'; '' if there are none."""
  fitting = [
    name
    for name, variant in agent_choice.variants(module).items()
    if kind in getattr(variant.defaults.agent, 'action_kinds', ())
  ]
  if fitting:
    return f'--agent={" or ".join(fitting)}, or '
  program = _ANY_ACTIONS.get(either.one(module.environments, ''))
  return f'--program={program}, or ' if program else ''
