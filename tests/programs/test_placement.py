"""What the programs of this repository declare about their groups."""

import pytest

from agents.options import make
from programs import registry
from tests.programs_under_test import ROOT


@pytest.mark.parametrize(
  'name, options, users',
  [
    ('sebulba', {}, {'replay', 'inference_learner'}),
    ('sebulba', {'audit': True}, {'replay', 'inference_learner'}),
    ('sebulba', {'num_actors': 2, 'inference_nodes': 2}, {'replay', 'learner'}),
    (
      'r2d2',
      {'num_actors': 2, 'inference_nodes': 2, 'audit': True},
      {'replay', 'learner', 'inference'},
    ),
    (
      'muzero',
      {'reanalyse_nodes': 1, 'reanalyse_share': 0.5},
      {'replay', 'inference_learner'},
    ),
    (
      'muzero',
      {'reanalyse_nodes': 1, 'reanalyse_share': 0.5, 'audit': True},
      {'replay', 'inference_learner', 'relabeller'},
    ),
    ('impala', {}, {'replay', 'learner'}),
    ('impala', {'audit': True}, {'replay', 'learner', 'actor'}),
    ('anakin', {}, {'anakin'}),
    ('gala', {}, {'peer'}),
    ('evolution', {}, {'evolver'}),
    ('population', {}, {'member', 'leaderboard'}),
    ('population_sebulba', {}, {'replay', 'member', 'leaderboard'}),
    ('gala_sebulba', {}, {'replay', 'inference_learner'}),
    ('intrinsic_rewards', {}, {'anakin'}),
    (f'{ROOT}/examples/mine.py:make_program', {}, {'replay', 'inference_learner'}),
  ],
)
def test_the_groups_that_use_the_run_directory_are_declared(name, options, users):
  module = registry.load(name)
  placement = module.placement(make(module.Config, **options).resolve())
  assert {g for g, resources in placement.items() if resources.uses_run_dir} == {'monitor', *users}


@pytest.mark.parametrize(
  'name, group',
  [
    ('sebulba', 'inference_learner'),
    ('impala', 'learner'),
    ('anakin', 'anakin'),
    ('evolution', 'evolver'),
  ],
)
def test_a_learner_without_checkpoints_is_not_restarted(name, group):
  """It would begin again from nothing. Other nodes do not save what they know, and are restarted."""
  module = registry.load(name)
  for period, expected in ((0.0, 'never'), (60.0, 'on_failure')):
    placement = module.placement(make(module.Config, checkpoint_period=period).resolve())
    assert (placement[group].restart, placement['evaluator'].restart) == (expected, 'on_failure')
