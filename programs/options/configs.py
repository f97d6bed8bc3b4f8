"""From values of flags to configs."""

from __future__ import annotations

import dataclasses
from typing import Any

from acme import specs

from environments import own_file


def make_config(module: Any, values: dict[str, Any]) -> Any:
  """Builds a program's config from the flags that were given.

  A preset for the environment's family goes below them and above the defaults; one for the very
  environment goes above that of its family.

  Args:
    module: the program's.
    values: flag name to value; lists hold strings.

  Raises:
    ValueError: if a flag is not one of the program's, or the values do not fit together.
  """
  config = resolve(module, values)
  check(module, config)
  return config


def check(module: Any, config: Any) -> None:
  """Raises ValueError, in one sentence, if the options do not fit together or `env` cannot be played."""
  config.validate()
  continuous = getattr(config, 'continuous_actions', True)  # Without an agent's options, who knows.
  if continuous or own_file.is_spec(config.env):
    module.environments.check(config.env, config.env_options)
  if continuous:
    return
  actions = module.environments.make_spec(config.env, config.env_options).actions
  if not isinstance(actions, specs.DiscreteArray):
    raise ValueError(
      f"--env={config.env} has continuous actions, of which this program's agent takes none: use "
      '--program=sebulba, or an environment with discrete actions.'
    )


def resolve(module: Any, values: dict[str, Any]) -> Any:
  """As `make_config`, but whether the values fit together is still to be checked."""
  fields = {f.name: f for f in dataclasses.fields(module.Config)}
  for name, value in values.items():
    if name not in fields:
      raise ValueError(f'--{name} is no option of this program.')
    if isinstance(fields[name].default, tuple):
      try:
        values[name] = tuple(int(v) for v in value)
      except ValueError:
        raise ValueError(f'--{name}={",".join(value)} must be whole numbers: 0,1,2.') from None
  if 'env' in values:
    values['env'] = own_file.absolute(values['env'])
  env = values.get('env', fields['env'].default)
  family = env.partition(':')[0]
  preset = module.PRESETS.get(family, {}) | module.PRESETS.get(env, {})
  return module.Config(**{**preset, **values}).resolve()
