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

# The settings in purejaxql's config/alg/pqn_minatar.yaml, by its own names.
_PUREJAXQL = {
  'NUM_ENVS': 128,
  'NUM_STEPS': 32,
  'EPS_START': 1.0,
  'EPS_FINISH': 0.05,
  'EPS_DECAY': 0.1,
  'NUM_MINIBATCHES': 32,
  'NUM_EPOCHS': 2,
  'NORM_TYPE': 'layer_norm',
  'LR': 5e-4,
  'MAX_GRAD_NORM': 10,
  'LR_LINEAR_DECAY': True,
  'GAMMA': 0.99,
  'LAMBDA': 0.65,
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


def purejaxql(env: str, budget: int) -> Peer:
  """Returns a row of purejaxql's PQN on a game of MinAtar, with its authors' settings."""
  given = {'config': _PUREJAXQL}
  return Peer(label='purejaxql-pqn', peer='purejaxql', env=env, budget=budget, given=given)
