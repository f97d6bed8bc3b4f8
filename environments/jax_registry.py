"""Registry of environments written in JAX: names and factories.

A name is `family` or `family:task`: `catch`, `gymnax:CartPole-v1`. To add a family, write one factory
and one line of the table below. A factory is

    def make(task: str, *, option=default, ...) -> agents.anakin.environment.JaxEnvironment

like those of `environments.registry`, without the number of environments and the seed. Importing this
module imports no JAX, nor do `check` and `make_spec`, which make it in a process of its own.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from acme import specs

from environments import registry, separate_process, user_file
from environments.registry import Family, resolve

_FAMILIES = {
  'brax': Family(
    'agents.anakin.environments.brax:make',
    'brax:<name>, robots in simulation, as brax:halfcheetah',
    'brax',
  ),
  'catch': Family('agents.anakin.environments.catch:make', "bsuite's Catch"),
  'craftax': Family(
    'agents.anakin.environments.craftax:make',
    'craftax:<id>, as craftax:Craftax-Symbolic-v1, Craftax-Classic-Symbolic-v1',
    'craftax',
  ),
  'gymnax': Family('agents.anakin.environments.gymnax:make', 'gymnax:<id>, as gymnax:CartPole-v1'),
  'jumanji': Family(
    'agents.anakin.environments.jumanji:make',
    'jumanji:<id>, puzzles and scheduling, as jumanji:Snake-v1, Game2048-v1',
    'jumanji',
  ),
  'lifetime': Family(
    'agents.anakin.environments.lifetime:make',
    'lifetime:<task>, many inner episodes of one task: empty_rooms, random_abc, key_box, '
    'nonstationary_abc',
  ),
  'minatar': Family(
    'agents.anakin.environments.minatar:make',
    'minatar:<Game>: Asterix, Breakout, Freeway, Seaquest, SpaceInvaders',
  ),
  'navix': Family(
    'agents.anakin.environments.navix:make',
    'navix:<id>, MiniGrid in JAX, as navix:Navix-Empty-8x8-v0',
    'navix',
  ),
  'pgx': Family(
    'agents.anakin.environments.pgx:make',
    'pgx:<game>, two players in self-play: tic_tac_toe, connect_four',
  ),
  'playground': Family(
    'agents.anakin.environments.playground:make',
    'playground:<name>, the Control Suite in MuJoCo Playground, as playground:CartpoleSwingup',
    'playground',
  ),
}


def families() -> dict[str, str]:
  """Returns one line of help for each family, by name."""
  return {name: _FAMILIES[name].description for name in sorted(_FAMILIES)}


def maker(name: str, options: str = '') -> Callable[[], Any]:
  """Returns a function that makes the environment in any process, even without the user's own file."""
  return functools.partial(make, user_file.carried(name), options)


def make(name: str | user_file.Named, options: str = '') -> Any:
  """Makes one environment, a `JaxEnvironment`.

  Args:
    name: `family` or `family:task`; or a user's own, as in `environments.registry`.
    options: 'key=value,key=value' for the factory's keyword-only parameters.

  Raises:
    ValueError: the name or an option is invalid; one sentence that names the flag and the fix.
  """
  factory, task, keywords = resolve(_FAMILIES, name, options)
  return factory(task, **keywords)


def all_options(name: str, options: str = '') -> dict[str, Any]:
  """Returns every option of an environment with its given or default value.

  Raises:
    ValueError: as in `make`, for the family and the options.
  """
  return resolve(_FAMILIES, name, options)[2]


def check(name: str, options: str = '') -> specs.EnvironmentSpec:
  """Makes an environment in a process of its own, to find errors before a start; returns its spec.

  Raises:
    ValueError: as in `make`, or the environment is not written in JAX.
  """
  family = name.partition(':')[0]
  if family not in _FAMILIES and not user_file.is_spec(name):
    known = ', '.join(f'{name} ({text})' for name, text in families().items())
    raise ValueError(f'--env={name} is not written in JAX; --program=anakin needs one of: {known}.')
  if name == 'catch' and not options:
    return registry.make_spec(name)  # The same game; starting JAX takes seconds.
  return make_spec(name, options)


@functools.cache
def make_spec(name: str, options: str = '') -> specs.EnvironmentSpec:
  """Returns the spec of one environment, by making one in a process of its own.

  Raises:
    ValueError: as in `check`.
  """
  flag = f'--env={name}'
  try:
    found: specs.EnvironmentSpec = separate_process.call(
      'environments.jax_registry:trial', name, options, flag=flag
    )
  except RuntimeError as error:
    if user_file.is_spec(name):
      raise ValueError(f'{flag} cannot be made: {str(error).splitlines()[-1]}') from error
    raise
  return found


def trial(name: str, options: str) -> specs.EnvironmentSpec:
  """Makes an environment in this process and returns its spec; tries a user's own.

  Raises:
    ValueError: as `make_spec` does.
  """
  environment = make(name, options)
  if user_file.is_spec(name):
    own = user_file.named(name)
    contract_check: Any = importlib.import_module('agents.anakin.contract_check')
    with user_file.user_code_errors(f'--env={own}: trying it', own.file.path):
      contract_check.check(environment)
  return specs.EnvironmentSpec(
    observations=environment.observation_spec,
    actions=environment.action_spec,
    rewards=specs.Array((), np.float32, 'reward'),
    discounts=specs.BoundedArray((), np.float32, -1.0, 1.0, 'discount'),
  )
