"""Presets: which exist, which one applies, and how it becomes a config."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

from agents import options as options_of
from agents.options import check_numbers
from environments import options as env_options
from programs.options.agent_choice import Variant
from programs.options.rule import Rule

# The key of families without a preset, and of users' files.
OTHERS = '*'
# The preset that applies unless --preset names another, and the one that sets nothing.
DEFAULT, NONE = 'default', 'none'

# Environment (family, family:task or OTHERS) to option to value; a value may be a `Rule`. What a task's
# own entry does not set, its family's does. OTHERS is for environments with neither.
Table = Mapping[str, Mapping[str, Any]]


def with_more_steps(presets: Mapping[str, Any], factor: int) -> Table:
  """Returns presets with `factor` times the steps, as for learners that share them."""
  return {
    env: {**preset, 'num_steps': factor * preset['num_steps']} if 'num_steps' in preset else preset
    for env, preset in presets.items()
  }


def tables(variant: Variant) -> dict[str, Table]:
  """Returns a program's presets by name, and by environment; those of `NONE` are empty."""
  return {DEFAULT: variant.presets, **variant.named_presets, NONE: {}}


def names(variant: Variant, env: str | None = None) -> list[str]:
  """Returns the names of the presets that a program has for an environment.

  Args:
    variant: the program with one of its agents.
    env: value of --env, or a key of a table; None for the presets of any environment.
  """
  every = tables(variant)
  if env is None:
    return list(every)
  return [name for name in every if name in (DEFAULT, NONE) or _of(every[name], env)]


def check(variant: Variant, env: str, name: str) -> None:
  """Raises ValueError, one sentence, unless a program has a preset of that name for an environment."""
  known = names(variant, env)
  if name not in known:
    table = tables(variant).get(name)
    others = f', but for {", ".join(table)}' if table else ''
    raise ValueError(
      f'--preset={name} does not exist for --env={env} with this program and agent{others}; there are: '
      f'{", ".join(known)}.'
    )


def options(variant: Variant, env: str, name: str) -> dict[str, Any]:
  """Returns what a preset sets, option to value or `Rule`; empty if there is none of that name."""
  return _of(tables(variant).get(name, {}), env)


def apply(defaults: Any, preset: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
  """Returns the resolved config of a preset's options and of `values`, which replace them.

  The other options are those of the config `defaults`.

  Of `env_options`, those that `values` does not name stay as in the preset.

  Raises:
    ValueError: one sentence, if a number is out of range or a rule raises.
  """
  known = options_of.flatten(defaults)
  for name, value in preset.items():
    if not isinstance(value, Rule):
      _check_type(known, name, value)
  chosen = {**preset, **values}
  if 'env_options' in preset and 'env_options' in values:
    chosen['env_options'] = env_options.merge(preset['env_options'], values['env_options'])
  rules = {name: rule for name, rule in chosen.items() if isinstance(rule, Rule)}
  settled = {name: value for name, value in chosen.items() if name not in rules}
  config = _resolved(defaults, settled)
  for name, rule in rules.items():
    try:
      settled[name] = rule.value(config)
    except Exception as error:
      raise ValueError(
        f"--{name}: the preset's rule, {rule.text}, raises {type(error).__name__}: {error}; give the "
        'option, or add --preset=none.'
      ) from error
    _check_type(known, name, settled[name])
    config = _resolved(defaults, settled)
  return config


def _resolved(defaults: Any, values: Mapping[str, Any]) -> Any:
  config = options_of.replace(defaults, **values)
  check_numbers(config)  # Rules and `resolve` compute with them.
  return config.resolve()


def _check_type(known: Mapping[str, Any], name: str, value: Any) -> None:
  """Raises ValueError, one sentence, unless a preset's value is one of an option."""
  if name not in known:
    raise ValueError(
      f'a preset sets {name}, which is not an option of the program; correct PRESETS.'
    )
  kind = type(known[name])
  fits = isinstance(value, numbers.Real if kind is float else kind)
  if not fits or (isinstance(value, bool) and kind is not bool):
    raise ValueError(
      f'a preset sets {name} to {value!r}, which is not of type {kind.__name__}; correct PRESETS.'
    )


def _of(table: Table, env: str) -> dict[str, Any]:
  family = env.partition(':')[0]
  if family not in table and env not in table:
    return dict(table.get(OTHERS, {}))
  return {**table.get(family, {}), **table.get(env, {})}
