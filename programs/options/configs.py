"""Builds configs from flag values."""

from __future__ import annotations

from typing import Any

from agents import options
from environments import user_file
from programs import estimates
from programs.options import (
  agent_choice,
  bsuite_results,
  offline,
  playable,
  preset_choice,
  user_torso,
)
from programs.options.rule import Rule
from rundir import run_directory


def make_config(module: Any, values: dict[str, Any]) -> Any:
  """Builds a program's config from the flags that were given.

  Precedence, highest first: flags; the preset of the environment; the preset of its family, or
  `preset_choice.OTHERS`; the defaults. Presets and defaults are those of the chosen agent, and
  `values['preset']` names the preset.

  Args:
    module: the program's module.
    values: flag name to value; lists hold strings.

  Raises:
    ValueError: if the program or its agent has no such flag, or the values are inconsistent.
  """
  config = resolve(module, values)
  check(module, config)
  return config


def check(module: Any, config: Any) -> None:
  """Checks that the options are consistent, the run can learn and the agent can play `env`.

  Raises:
    ValueError: if a check fails; one sentence.
  """
  preset_choice.check(agent_choice.variant_of(module, config), config.run.env, config.run.preset)
  check_numbers(config)
  spec = playable.check(module, config)
  bsuite_results.check_counts(config)
  if isinstance(replay := getattr(config, 'replay', None), offline.RecordedOptions):
    offline.check(replay, config.num_replicas, spec)


def check_numbers(config: Any) -> None:
  """Checks, of all that `check` does, what needs no environment: that the options fit together.

  Raises:
    ValueError: one sentence that names the flag and the fix.
  """
  user_torso.carried(config).validate()
  estimates.check(config)


def resolve(module: Any, values: dict[str, Any]) -> Any:
  """Like `make_config`, but without the checks of `check`."""
  return estimates.with_decay(choose(module, values))


def choose(module: Any, values: dict[str, Any]) -> Any:
  """Like `resolve`, but without the numbers of steps that follow from the length of the run."""
  _, variant = agent_choice.chosen(module, values)
  defaults = options.flatten(variant.defaults)
  values = dict(values)
  for name, value in values.items():
    if isinstance(defaults[name], tuple):
      try:
        values[name] = tuple(int(v) for v in value)
      except ValueError:
        raise ValueError(f'--{name}={",".join(value)} must be whole numbers: 0,1,2.') from None
  for name in ('env', 'torso', 'agent'):
    if name in values:
      values[name] = user_file.absolute(values[name])
  if values.get('offline_data'):
    named = filter(None, values['offline_data'].split(','))
    values['offline_data'] = ','.join(map(run_directory.absolute, named))
  if values.get('init_from'):
    values['init_from'] = run_directory.absolute(values['init_from'])
  env = values.get('env', defaults['env'])
  preset = preset_choice.options(variant, env, values.get('preset', defaults['preset']))
  return preset_choice.apply(variant.defaults, preset, values)


def options_set_by_rules(module: Any, config: Any) -> dict[str, Any]:
  """Returns the options for which the config's preset has a rule, with the config's values.

  As flags they hold these values in a run of another length, such as one that is stopped by hand.
  """
  variant = agent_choice.variant_of(module, config)
  preset = preset_choice.options(variant, config.run.env, config.run.preset)
  values = options.flatten(config)
  return {name: values[name] for name, value in preset.items() if isinstance(value, Rule)}
