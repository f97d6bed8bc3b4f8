"""Into how many groups the environments of an actor are split if the options leave it open."""

import dataclasses

import pytest

from agents.options import make as make_config
from environments import registry
from nodes.inference.options import GroupedActingOptions
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


def test_the_help_names_the_families_whose_steps_are_quick():
  (field,) = (f for f in dataclasses.fields(GroupedActingOptions) if f.name == 'env_groups')
  _, _, families = field.metadata['help'].partition(
    'one if a step takes no longer than a message ('
  )
  assert sorted(families.partition(')')[0].split(', ')) == registry.quick_families()
