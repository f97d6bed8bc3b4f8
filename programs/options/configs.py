"""From values of flags to configs."""

from __future__ import annotations

import dataclasses
from typing import Any

from environments import own_file


def make_config(module: Any, values: dict[str, Any]) -> Any:
  """Builds a program's config from the flags that were given.

  A preset for the environment's family goes below them and above the defaults.

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
  """Raises ValueError, in one sentence, if the options do not fit together or there is no such `env`."""
  config.validate()
  module.environments.check(config.env, config.env_options)


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
  preset = module.PRESETS.get(env.partition(':')[0], {})
  return module.Config(**{**preset, **values}).resolve()
