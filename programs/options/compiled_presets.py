"""Presets of Anakin, for each of its agents; see `programs.options.preset_choice`."""

from collections.abc import Mapping
from typing import Any

from programs.options.preset_choice import OTHERS, Table, with_more_steps
from programs.options.presets import (
  MUZERO_LEARNER,
  MUZERO_PIXELS,
  PENDULUM,
  PPO_CONTINUOUS,
  PPO_CRAFTAX,
  PPO_MINATAR,
  PPO_MUJOCO,
  PPO_NAVIX,
  PPO_SMALL,
  PQN_MINATAR,
  PQN_SMALL,
  R2D2_SMALL,
  VTRACE_SMALL,
)


def _on_minatar(preset: Mapping[str, Any]) -> Table:
  """Returns a preset for MinAtar's games by their own names and by those of gymnax."""
  games = ('Asterix', 'Breakout', 'Freeway', 'Seaquest', 'SpaceInvaders')
  return {'minatar': preset, **{f'gymnax:{game}-MinAtar': preset for game in games}}


# Rates for Adam and for RMSProp differ; see docs/programs.md#gala for the published values.
GALA = {
  OTHERS: {'num_steps': 1_500_000},
  **_on_minatar({'num_steps': 5_000_000}),
}

# RMSProp as in A2C, at a rate for batches of 2,560 transitions; breakout-differences has Adam beside it.
_VTRACE_MINATAR = {
  'normalize_rewards': False,
  'num_envs': 128,
  'unroll_length': 20,
  'optimizer': 'rmsprop',
  'rmsprop_eps': 1e-5,
  'rmsprop_eps_place': 'outside',
  'learning_rate': 1e-2,
  'learning_rate_schedule': 'linear',
  'max_gradient_norm': 0.5,
  'num_steps': 5_000_000,
}

VTRACE: Table = {
  'catch': {'num_steps': 1_500_000},
  OTHERS: VTRACE_SMALL | {'num_steps': 1_500_000},
  'gymnax': VTRACE_SMALL | {'learning_rate': 1e-3, 'num_steps': 2_000_000},
  **_on_minatar(_VTRACE_MINATAR),
  'gymnax:Pendulum-v1': PENDULUM | {'num_envs': 32, 'updates_per_call': 25},
}
_EXPLORING = {'entropy_cost': 0.03}
PPO: Table = {
  OTHERS: PPO_SMALL | {'num_steps': 1_500_000},
  'gymnax': PPO_SMALL | {'num_steps': 2_000_000},
  'gymnax:Pendulum-v1': PPO_CONTINUOUS,
  **_on_minatar(PPO_MINATAR),
  # With PureJaxRL's cost, two seeds of three stop exploring before the submarine surfaces.
  'minatar:Seaquest': _EXPLORING,
  'gymnax:Seaquest-MinAtar': PPO_MINATAR | _EXPLORING,
  'brax': PPO_MUJOCO,
  'playground': PPO_MUJOCO,
  'navix': PPO_NAVIX,
  'craftax': PPO_CRAFTAX,
}

_PQN = PQN_SMALL | {'num_envs': 32}
PQN = {
  OTHERS: _PQN | {'num_steps': 500_000},
  **_on_minatar(PQN_MINATAR | {'num_envs': 128}),
}

_MUZERO = MUZERO_LEARNER | {'num_envs': 16, 'updates_per_call': 20}
# Board games: samples are uniform, as in MuZero, and in tic-tac-toe a target is the outcome of the game.
_MUZERO_GAME = MUZERO_LEARNER | {
  'model': 'mlp',  # Convolutions are for an accelerator.
  'mlp_sizes': (256, 256),
  'hidden_state_size': 128,
  'head_size': 128,
  'discount': 1.0,
  'num_bins': 21,
  'max_bin': 1.0,
  'value_cost': 1.0,
  'num_simulations': 16,
  'gumbel_value_scale': 0.03,  # With 0.1 all games of self-play soon are the same few draws.
  'num_unroll_steps': 3,
  'learning_rate': 1e-3,
  'learning_rate_schedule': 'linear',  # At a constant rate, a few games in a hundred are lost again.
  'num_envs': 32,
  'batch_size': 128,
  'updates_per_call': 20,
  'priority_exponent': 0.0,
}
MUZERO = {
  OTHERS: _MUZERO | {'num_steps': 500_000},
  'catch': _MUZERO | {'num_steps': 200_000},
  **_on_minatar(_MUZERO | MUZERO_PIXELS | {'num_steps': 1_000_000}),
  'pgx:connect_four': _MUZERO_GAME | {'unroll_length': 16, 'n_step': 16, 'num_steps': 2_000_000},
  # Without random moves, self-play visits few positions: 2 games in 100 are lost to a perfect player.
  'pgx:tic_tac_toe': _MUZERO_GAME
  | {'n_step': 9, 'num_steps': 1_000_000, 'env_options': 'random_moves=4'},
}

_R2D2 = R2D2_SMALL | {
  'num_envs': 32,
  'updates_per_call': 40,
  'samples_per_insert': 8.0,
  'target_update_period': 50,
}
R2D2: Table = {
  OTHERS: _R2D2 | {'num_steps': 500_000},
  'catch': _R2D2 | {'num_steps': 200_000},
  **_on_minatar(_R2D2 | {'core_size': 128, 'head_size': 128, 'num_steps': 1_000_000}),
}


# Eight members have half of the steps that one learner has alone, and profit from each other's.
POPULATION_VTRACE, POPULATION_PPO = with_more_steps(VTRACE, 4), with_more_steps(PPO, 4)
# R2D2 does hundreds of updates before its first offspring, so here a member has the steps of one alone.
POPULATION_R2D2 = with_more_steps(R2D2, 8)

# Steps of lifetimes, of which one learner step takes 40 from each of 128 environments, or 5 where a
# trajectory is one choice. One call has 40,960 steps. Returns of lifetimes vary, so many are evaluated.
_LIFETIMES = {
  'num_envs': 128,
  'updates_per_call': 8,
  'inner_period': 8,
  'inner_updates': 5,
  'gru_size': 64,
  'learning_rate': 3e-3,
  'learning_rate_schedule': 'linear',
  'eval_envs': 100,
  'eval_episodes': 1000,
  'num_steps': 5_000_000,
}
_CHOICES = _LIFETIMES | {
  'updates_per_call': 64,
  'inner_period': 1,
  'gru_size': 32,
}
INTRINSIC_REWARDS = {
  OTHERS: _LIFETIMES,
  'lifetime:random_abc': _CHOICES,
  'lifetime:nonstationary_abc': _CHOICES,
}
