"""Rows of our programs."""

from __future__ import annotations

from benchmarks.results.declared import DEFAULT_SEEDS, Launch


def ours(
  program: str,
  env: str,
  budget: int,
  *flags: str,
  label: str = '',
  seeds: tuple[int, ...] = DEFAULT_SEEDS,
) -> Launch:
  """Returns a row of a program; its label is the program's name by default."""
  return Launch(
    label=label or program, program=program, env=env, budget=budget, flags=flags, seeds=seeds
  )


def ppo(program: str, env: str, budget: int, *flags: str, label: str = '') -> Launch:
  """Returns a row of a program with PPO; its label is the program's name and -ppo by default."""
  return ours(program, env, budget, '--agent=ppo', *flags, label=label or f'{program}-ppo')


def muzero(env: str, budget: int, *flags: str, label: str = 'anakin-muzero') -> Launch:
  """Returns a row of MuZero under Anakin."""
  return ours('anakin', env, budget, '--agent=muzero', *flags, label=label)
