"""Options that have no effect with the values of others."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

# Option names, or beginnings of them that end in _; the option that they need, and its values.
_NEEDED: tuple[tuple[tuple[str, ...], str, tuple[Any, ...]], ...] = (
  (('lstm_size',), 'core', ('lstm',)),
  (('adam_',), 'optimizer', ('adam',)),
  (('rmsprop_',), 'optimizer', ('rmsprop',)),
  (('puct_', 'dirichlet_', 'temperature_decay_steps'), 'search', ('puct',)),
  (('gumbel_', 'max_considered_actions'), 'search', ('gumbel',)),
)
# Options without effect where another one is 0.
_OF_PARTS = {
  'eval_envs': ('eval_episodes', 'eval_period', 'eval_share', 'eval_seconds'),
  'checkpoint_period': ('checkpoints_kept',),
}


def warnings(config: Any, given: Collection[str]) -> list[str]:
  """Returns a sentence for each option that was given and has no effect.

  Args:
    config: every option.
    given: names of the options that the user has given.
  """
  found = []
  for names, needed, values in _NEEDED:
    if getattr(config, needed, values[0]) not in values:
      found += [
        f'--{name} has no effect without --{needed}={values[0]}.'
        for name in sorted(given)
        if name in names or name.startswith(tuple(n for n in names if n.endswith('_')))
      ]
  for part, names in _OF_PARTS.items():
    if not getattr(config, part, 1):
      found += [f'--{name} has no effect with --{part}=0.' for name in names if name in given]
  return found
