"""Options that have no effect with the values of others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from agents import options

# Beginnings of option names; the option that they need, and its values.
_NEEDED: tuple[tuple[tuple[str, ...], str, tuple[str, ...]], ...] = (
  (('core_size', 'clip_reward_input'), 'core', ('lstm', 'gru', 'lru')),
  (('forget_bias',), 'core', ('lstm', 'gru')),
  (('adam_',), 'optimizer', ('adam', 'radam')),
  (('rmsprop_',), 'optimizer', ('rmsprop',)),
  (('puct_', 'dirichlet_', 'temperature_decay_steps'), 'search', ('puct',)),
  (('gumbel_', 'max_considered_actions'), 'search', ('gumbel',)),
  (('model_', 'head_channels'), 'model', ('auto', 'conv', 'residual')),
  (('hidden_state_size', 'mlp_sizes'), 'model', ('auto', 'mlp', 'torso')),
  (('reward_',), 'inner_reward', ('learned',)),
  (('count_bonus',), 'inner_reward', ('count',)),
)
# Options without effect where another one is 0.
_OF_PARTS = {
  'eval_envs': ('eval_episodes', 'eval_period', 'eval_share', 'eval_seconds', 'eval_episode_steps'),
  'checkpoint_period': ('checkpoints_kept',),
}


def warnings(config: Any, given: Collection[str]) -> list[str]:
  """Returns a sentence for each option that was given and has no effect.

  Args:
    config: every option.
    given: names of the options that the user has given.
  """
  found, values = [], options.flatten(config)
  for names, needed, suitable in _NEEDED:
    if values.get(needed, suitable[0]) not in suitable:
      found += [
        f'--{name} has no effect without --{needed}={_either(suitable)}.'
        for name in sorted(given)
        if name.startswith(names)
      ]
  for part, depending in _OF_PARTS.items():
    if not values.get(part, 1):
      found += [f'--{name} has no effect with --{part}=0.' for name in depending if name in given]
  return found


def _either(values: Sequence[str]) -> str:
  *others, last = values
  return f'{", ".join(others)} or {last}' if others else last
