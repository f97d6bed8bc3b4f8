"""Registry of environments: names and factories.

A name is `family` or `family:task`: `catch`, `bsuite:memory_len/5`, `atari:Pong`. To add a family,
write one factory and one line of the table below. An environment of your own needs no line: its name
is `path/to/mine.py:factory` or `path/to/mine.py:factory:task`. A factory is

    def make(task: str, num_envs: int, seed: int, *, option=default, ...) -> BatchedEnvironment

Its keyword-only parameters are the options of the environment; their defaults are bools, ints,
floats or strings and give the options their types. `**keywords` take further ones, see
`environments.options`. It raises ValueError with one sentence for an
unsupported task or value.

Importing this module imports no environment library: a factory named 'module:function' is imported
when one of its environments is first made or checked.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from acme import specs

from environments import base, contract_check, errors, separate_process, user_file
from environments import options as env_options
from environments.base import BatchedEnvironment, Described


class Family(NamedTuple):
  """A row of the table: the 'module:function' of the factory, and a line of help.

  `package` is what `make add` installs for a factory whose packages requirements.txt lacks. `quick` says
  that a step of an environment takes no longer than its part of a message to inference.
  """

  factory: str
  description: str
  package: str = ''
  quick: bool = False


_FAMILIES = {
  'atari': Family('environments.atari:make', 'atari:<Game>, such as atari:Pong; raw 84x84 frames'),
  'bsuite': Family(
    'environments.bsuite:make', 'bsuite:<id>, such as bsuite:memory_len/5', quick=True
  ),
  'cartpole': Family(
    'environments.gym_make:make_cartpole', "Gymnasium's CartPole-v1, vectorised", quick=True
  ),
  'catch': Family(
    'environments.catch:make', "bsuite's Catch, vectorised: for tests and smoke runs", quick=True
  ),
  'dm_control': Family(
    'environments.dm_control:make',
    'dm_control:<domain>/<task>, such as dm_control:cartpole/swingup',
  ),
  'gymnasium': Family(
    'environments.gym_make:make',
    'gymnasium:<id>, such as gymnasium:Acrobot-v1, LunarLander-v3, HalfCheetah-v5',
  ),
  'minatar': Family(
    'environments.minatar:make',
    'minatar:<Game>: Asterix, Breakout, Freeway, Seaquest, SpaceInvaders',
    quick=True,
  ),
  'recall': Family(
    'environments.recall:make',
    'a cue, distractors, a question: memory beyond an unroll',
    quick=True,
  ),
}


def families() -> dict[str, str]:
  """Returns one line of help for each family, by name."""
  return {name: _FAMILIES[name].description for name in sorted(_FAMILIES)}


def quick_families() -> list[str]:
  """Returns the families whose steps are known to take no longer than their part of a message."""
  return [name for name in sorted(_FAMILIES) if _FAMILIES[name].quick]


def make(
  name: str | user_file.Named, num_envs: int, seed: int, options: str = ''
) -> BatchedEnvironment:
  """Makes a batch of environments.

  Args:
    name: `family` or `family:task`; or a user's own, as a string or from `user_file.carried`.
    num_envs: N, at least 1.
    seed: the seed of the batch, at least 0; each of the N environments gets a different seed from it.
    options: 'key=value,key=value' for the factory's keyword-only parameters.

  Raises:
    ValueError: the name, an option, `num_envs` or the seed is invalid; one sentence that names the flag
      and the fix.
  """
  if num_envs < 1:
    raise ValueError(f'a batch has at least 1 environment, not {num_envs}')
  if seed < 0:
    raise ValueError(f'the seed of a batch of environments is at least 0, not {seed}')
  factory, task, keywords = resolve(_FAMILIES, name, options)
  return factory(task, num_envs, seed, **keywords)


def maker(name: str, options: str = '') -> Callable[[int, int], BatchedEnvironment]:
  """Returns a function that makes a batch in any process, given its size and a seed.

  Raises:
    ValueError: a user's own file cannot be read.
  """
  return functools.partial(make, user_file.carried(name), options=options)


def describer(
  name: str, options: str = '', python: str = ''
) -> Callable[[int, int], BatchedEnvironment]:
  """Returns what `maker` does, for a node that only needs the description of the environment.

  If another interpreter makes the environments, it makes one now, unless `check` has.

  Args:
    name: as in `make`.
    options: as in `make`.
    python: as in `check`.

  Raises:
    ValueError: as in `check`.
  """
  return _described(name, options, python) if python else maker(name, options)


def check(name: str, options: str = '', python: str = '') -> specs.EnvironmentSpec:
  """Tries an environment in a process of its own, before a program starts; returns its spec.

  Args:
    name: as in `make`.
    options: as in `make`.
    python: the interpreter that makes the environments; '' for this one.

  Raises:
    ValueError: as in `trial`, or the environment ends its process; one sentence.
  """
  return _described(name, options, python).spec


def _described(name: str, options: str, python: str) -> Described:
  return _tried(_carried(name), options, python)


@functools.cache
def _tried(name: str | user_file.Named, options: str, python: str) -> Described:
  flag = f'--env={name}'
  found: Described = separate_process.call(
    'environments.registry:trial', name, options, flag=flag, python=python
  )
  return found


def trial(name: str | user_file.Named, options: str = '') -> Described:
  """Makes one environment in this process and closes it; returns its description.

  An environment of a user's own file, or of a module that Gymnasium imports, is also stepped; see
  `environments.contract_check`.

  Args:
    name: as in `make`.
    options: as in `make`.

  Raises:
    ValueError: as in `make`, or the user's environment violates the interface; one sentence.
  """
  own = _carried(name)
  if isinstance(own, user_file.Named):
    _, _, keywords = resolve({}, own, options)
    return contract_check.run(own, keywords)
  kind, _, task = own.partition(':')
  module, colon, _ = task.partition(':')
  if kind == 'gymnasium' and colon:
    batch = make(own, contract_check.NUM_ENVS, 0, options)
    return contract_check.played(
      batch, f'--env={own}', getattr(sys.modules.get(module), '__file__', '')
    )
  return Described(*base.describe(functools.partial(make, own, options=options)))


def all_options(name: str, options: str = '', python: str = '') -> dict[str, Any]:
  """Returns every option of an environment with its given or default value.

  Args:
    name: as in `make`.
    options: as in `make`.
    python: the interpreter that has the environment; '' for this one.

  Raises:
    ValueError: as in `make`, for the family and the options.
  """
  if python:
    found: dict[str, Any] = separate_process.call(
      'environments.registry:all_options', name, options, flag=f'--env={name}', python=python
    )
    return found
  return resolve(_FAMILIES, name, options)[2]


def make_spec(name: str, options: str = '') -> specs.EnvironmentSpec:
  """Returns the spec of one environment, by making one and closing it.

  Raises:
    ValueError: as in `make`.
  """
  environment = make(name, 1, 0, options)
  try:
    return environment.spec()
  finally:
    environment.close()


def resolve(
  table: Mapping[str, Family], name: str | user_file.Named, options: str
) -> tuple[Callable[..., Any], str, dict[str, Any]]:
  """Looks a name up in a table of families.

  Args:
    table: families by name.
    name: `family` or `family:task`; or a factory of a user's own file.
    options: 'key=value,key=value' for the factory's keyword-only parameters.

  Returns:
    The family's factory, imported if it is a string; the task; every option, in the types of the
    factory's defaults.

  Raises:
    ValueError: the family is unknown, or an option is invalid; one sentence.
  """
  own = _carried(name)
  if isinstance(own, user_file.Named):
    try:
      mine = own.load()
    except ValueError as error:
      raise ValueError(f'--env={error}') from error
    return mine, own.task, env_options.of_factory(str(own), mine, options)
  family, _, task = own.partition(':')
  if family not in table:
    raise _unknown_family(table, own, family)
  module, _, function = table[family].factory.partition(':')
  try:
    factory = getattr(importlib.import_module(module), function)
  except ModuleNotFoundError as error:
    if not (package := table[family].package):
      raise
    raise ValueError(
      f'--env={own} needs the package {package}, and there is no module {error.name}; run `make add '
      f'PACKAGES={package}`.'
    ) from error
  return factory, task, env_options.of_factory(family, factory, options)


def _unknown_family(table: Mapping[str, Family], name: str, family: str) -> ValueError:
  jax_registry = importlib.import_module('environments.jax_registry')  # Which imports this module.
  if family in jax_registry.families():
    return ValueError(
      f'--env={name} is written in JAX, which actors do not import; play it with --program=anakin, or '
      'with another program that --list_envs shows it for.'
    )
  known = sorted(table)
  return ValueError(
    f'--env={name}: there is no environment family {family!r}{errors.did_you_mean(family, known)} '
    f'(the families are {", ".join(known)})'
  )


def _carried(name: str | user_file.Named) -> str | user_file.Named:
  """Returns a name with the source of a user's own file, as `user_file.carried` does."""
  try:
    return user_file.carried(name) if isinstance(name, str) else name
  except ValueError as error:
    raise ValueError(f'--env={error}') from error
