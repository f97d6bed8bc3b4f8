"""From values of flags to configs."""

from __future__ import annotations

import dataclasses
from typing import Any

from acme import specs

from environments import own_file
from programs import arithmetic

# Of a program's presets, the one for families that have none of their own, and for users' files.
OTHERS = '*'


def make_config(module: Any, values: dict[str, Any]) -> Any:
  """Builds a program's config from the flags that were given.

  A preset for the environment's family, or for those without one, goes below them and above the
  defaults; one for the very environment goes above that of its family.

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
  """Checks that the options fit together, that something can be learned, and that `env` can be played.

  Raises:
    ValueError: if not; one sentence.
  """
  config.validate()
  arithmetic.check(config)
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
  values = dict(values)
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
  presets = module.PRESETS
  preset = presets.get(family, presets.get(OTHERS, {})) | presets.get(env, {})
  return arithmetic.with_decay(module.Config(**{**preset, **values}).resolve())
