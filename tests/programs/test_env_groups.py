"""Into how many groups the environments of an actor are split if the options leave it open."""

import pytest

from agents.options import make as make_config
from programs import r2d2, sebulba


@pytest.mark.parametrize(
  'module, options, groups',
  [
    (sebulba, {'env': 'catch'}, 1),
    (r2d2, {'env': 'minatar:Breakout'}, 1),
    (sebulba, {'env': 'atari:Pong'}, 2),
    (sebulba, {'env': 'path/to/mine.py:make'}, 2),
    (sebulba, {'env': 'atari:Pong', 'envs_per_actor': 5}, 1),
    (sebulba, {'env': 'atari:Pong', 'actors_as_threads': True}, 1),
    (sebulba, {'env': 'catch', 'env_groups': 2}, 2),
  ],
)
def test_environments_are_split_where_a_message_costs_less_than_a_step(module, options, groups):
  config = make_config(module.Config, **options).resolve()
  assert config.acting.env_groups == groups
  assert config.resolve() == config
  # The unrolls of a group are written together, in whole items.
  assert config.env_group_size % config.unrolls_per_item == 0
