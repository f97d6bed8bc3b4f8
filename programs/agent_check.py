"""Tries an agent with the user's own torso or another run's parameters before a program starts.

launch.py imports no JAX, so the check runs in a process of its own, which computes shapes only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from environments import jax_registry, separate_process, user_file
from programs.options import user_torso
from programs.runs import Run
from programs.warm_start import Source

_BATCH_SIZE = 3


def check(run: Run, source: Source | None) -> None:
  """Checks a user's own torso, and that the parameters of another run fit the agent.

  Args:
    run: the run.
    source: the parameters that it begins with; None for new ones or those of its checkpoint.

  Raises:
    ValueError: one sentence that names the flag and what does not fit.
  """
  torso = user_torso.named(run.config)
  if not torso and source is None:
    return
  flag = f'--torso={torso}' if torso else f'--init_from={run.config.init_from}'
  if run.module.make_agent is None:
    raise ValueError(
      f'{flag}: there is no make_agent(config) in {run.program}; add it to the file.'
    )
  separate_process.call(
    'programs.agent_check:trial',
    run.module.make_agent(run.config),
    run.module.environments,
    run.config.env,
    run.config.env_options,
    torso,
    source,
    flag=flag,
  )


def trial(
  make_agent: Callable[..., Any],
  environments: Any,
  env: str,
  env_options: str,
  torso: str,
  source: Source | None,
) -> None:
  """Builds the agent in this process and traces its functions.

  Args:
    make_agent: takes the specs of observations and actions.
    environments: the registry of the program.
    env: of the run.
    env_options: of the run.
    torso: the user's own, path/to/mine.py:MyTorso; '' without one.
    source: the parameters to begin with; None for others.

  Raises:
    ValueError: as `check` does.
  """
  from agents import shapes
  from nodes.learning import serialisation

  if environments is jax_registry:
    environment = jax_registry.make(env, env_options)
    specs = environment.observation_spec, environment.action_spec
  else:
    spec = environments.make_spec(env, env_options)
    specs = spec.observations, spec.actions
  if torso:
    own = user_file.named(torso)
    try:
      own.load()
    except ValueError as error:
      raise ValueError(f'--torso={error}') from error
    with user_file.user_code_errors(f'--torso={own}: trying it', own.file.path):
      shapes.act_output(make_agent(*specs), specs[0], _BATCH_SIZE)
  if source is not None:
    try:
      serialisation.params(source.saved, shapes.params(make_agent(*specs)), source.advice)
    except ValueError as error:
      raise ValueError(f'--init_from: {error}') from error
