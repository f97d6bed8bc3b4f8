"""Tries an agent that is, or has a part that is, the user's own before a program starts.

launch.py imports no JAX, so the check runs in a process of its own, which computes shapes only.

Importing JAX and tracing take some seconds. The agents and torsos of this repository are left out: tests
trace them, and `programs.options.playable` checks what they take.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from acme import specs

from agents import options
from environments import either, jax_registry, separate_process, user_file
from launchers import streams
from programs.options import playable, user_agent, user_torso
from programs.runs import Run
from programs.warm_start import Source


def check(run: Run, source: Source | None) -> Sequence[str]:
  """Traces a user's own agent or torso, and checks that another run's parameters fit the agent.

  A user's own program without `make_agent` is not tried.

  Args:
    run: the run.
    source: the parameters that it begins with; None for new ones or those of its checkpoint.

  Returns:
    Warnings, one sentence each.

  Raises:
    ValueError: one sentence that names the flag and what does not fit.
  """
  flag = _tried(run.config) or (f'--init_from={run.config.run.init_from}' if source else '')
  make_agent = run.module.make_agent
  if make_agent is None:
    if flag:
      raise ValueError(
        f'{flag}: there is no make_agent(config) in {run.program}; add it to the file.'
      )
    return ()
  own = user_file.is_spec(run.program)
  if not (flag or own):
    return ()
  flag = flag or f'--program={run.program}'
  notice = f'still trying {flag}, after {playable.NOTICE_SECONDS:.0f} s'
  with streams.announced_if_slow(notice, playable.NOTICE_SECONDS):
    elsewhere = bool(options.value(run.config, 'actor_python', ''))
    warnings: Sequence[str] = separate_process.call(
      'programs.agent_check:trial',
      make_agent(run.config),
      run.module.environments,
      run.config,
      run.program if own else '',
      source,
      playable.spec(run.module, run.config) if elsewhere else None,
      flag=flag,
    )
  return warnings


def trial(
  make_agent: Callable[..., Any],
  environments: Any,
  config: Any,
  program: str,
  source: Source | None,
  spec: specs.EnvironmentSpec | None = None,
) -> list[str]:
  """Builds the agent in this process and traces its functions; returns what `check` does.

  Args:
    make_agent: takes the specs of observations and actions.
    environments: the registry of the program.
    config: of the run.
    program: the user's own, path/to/mine.py:make_program; '' without one.
    source: the parameters to begin with; None for others.
    spec: of the environment, if another interpreter plays it; None to make one here.

  Raises:
    ValueError: as `check` does.
  """
  from agents import shapes
  from nodes.learning import tracing, warm_start

  if spec is None:
    spec = _spec(environments, config)
  agent, torso = user_agent.named(config), user_torso.named(config)
  warnings: list[str] = []
  files = [user_file.named(name).file.path for name in (agent, torso, program) if name]
  if agent:
    user_agent.check_options(user_agent.read(agent), user_torso.carried(config))
  if torso:
    with user_file.named_by('torso'):
      user_file.named(torso).load()
  if files:
    flag = _tried(config)
    tried = f'{flag}: trying it' if flag else f'--program={program}: trying its agent'
    with user_file.user_code_errors(tried, *files):
      built = make_agent(spec.observations, spec.actions)
      prioritized = bool(options.value(config, 'priority_exponent', 0))
      table, unrolls = config.learner_batch
      tracing.trace(built, spec, table, unrolls, prioritized)
    if agent and not isinstance(built, user_agent.load(user_agent.read(agent))):
      raise ValueError(
        f'--agent={agent}: make_agent of --program={program} returns another agent, '
        f'{type(built).__name__}; let it return programs.sebulba.make_agent(config), or leave --agent '
        'out.'
      )
    if agent:
      warnings = [f'--agent={agent}: {each}' for each in _misspelt(type(built))]
  if source is not None:
    try:
      params = shapes.params(make_agent(spec.observations, spec.actions))
      warm_start.fitting(source.saved, params, source.advice)
    except ValueError as error:
      raise ValueError(f'--init_from: {error}') from error
  return warnings


def _misspelt(agent: type) -> Iterator[str]:
  """Yields a sentence for each method of a user's class with nearly the name of one of its base."""
  for own in agent.__mro__:
    bases = {name for base in own.__mro__[1:] for name in vars(base) if not name.startswith('_')}
    if own.__module__.partition('.')[0] == 'agents':
      return
    for name, value in vars(own).items():
      near = difflib.get_close_matches(name, bases, n=1, cutoff=0.85)
      if inspect.isfunction(value) and near and name not in bases:
        yield (
          f'{own.__name__}.{name} overrides nothing, since the method of its base is {near[0]}; if that '
          'is what it should replace, rename it.'
        )


def _tried(config: Any) -> str:
  """Returns the flag that names what is the user's own: the agent, else the torso; else ''."""
  for name, own in ('agent', user_agent.named(config)), ('torso', user_torso.named(config)):
    if own:
      return f'--{name}={own}'
  return ''


def _spec(environments: Any, config: Any) -> specs.EnvironmentSpec:
  """Returns the spec of one environment, which this process makes."""
  environments = either.one(environments, config.run.env)
  if environments is jax_registry:
    environment = jax_registry.make(config.run.env, config.run.env_options)
    return specs.EnvironmentSpec(environment.observation_spec, environment.action_spec, None, None)
  found: specs.EnvironmentSpec = environments.make_spec(config.run.env, config.run.env_options)
  return found
