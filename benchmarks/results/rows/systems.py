"""Rows of our programs."""

from __future__ import annotations

from benchmarks.results.declared import DEFAULT_SEEDS, Launch, Peer

# The settings in purejaxrl's ppo.py, by its own names.
_PUREJAXRL = {
  'LR': 2.5e-4,
  'NUM_ENVS': 4,
  'NUM_STEPS': 128,
  'UPDATE_EPOCHS': 4,
  'NUM_MINIBATCHES': 4,
  'GAMMA': 0.99,
  'GAE_LAMBDA': 0.95,
  'CLIP_EPS': 0.2,
  'ENT_COEF': 0.01,
  'VF_COEF': 0.5,
  'MAX_GRAD_NORM': 0.5,
  'ACTIVATION': 'tanh',
  'ANNEAL_LR': True,
}


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


def pqn(program: str, env: str, budget: int, *flags: str, label: str = '') -> Launch:
  """Returns a row of a program with PQN; its label is the program's name and -pqn by default."""
  return ours(program, env, budget, '--agent=pqn', *flags, label=label or f'{program}-pqn')


def muzero(env: str, budget: int, *flags: str, label: str = 'anakin-muzero') -> Launch:
  """Returns a row of MuZero under Anakin."""
  return ours('anakin', env, budget, '--agent=muzero', *flags, label=label)


def purejaxrl(env: str, budget: int, **config: object) -> Peer:
  """Returns a row of purejaxrl's PPO with the settings of its script, except those given."""
  given = {'config': _PUREJAXRL | config}
  return Peer(label='purejaxrl-ppo', peer='purejaxrl', env=env, budget=budget, given=given)
