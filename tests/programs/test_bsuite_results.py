"""Runs that record bsuite's own results."""

import pytest

from agents.options import make, replace
from environments import registry
from environments.bsuite_record import csv_path
from programs import sebulba
from programs.options import bsuite_results

CONFIG = make(
  sebulba.Config,
  env='bsuite:catch/0',
  num_actors=1,
  envs_per_actor=1,
  env_groups=1,
  eval_envs=0,
)


def recording(path, **changes):
  return replace(CONFIG, env_options=f'results_dir={path}', **changes)


@pytest.mark.parametrize(
  'name, value, advice',
  [
    ('num_actors', 2, '--num_actors=1'),
    ('envs_per_actor', 8, '--envs_per_actor=1'),
    ('num_replicas', 2, '--num_replicas=1'),
    ('eval_envs', 10, '--eval_envs=0'),
  ],
)
def test_results_are_of_one_environment(tmp_path, name, value, advice):
  bsuite_results.check_counts(recording(tmp_path))
  bsuite_results.check_counts(replace(CONFIG, **{name: value}))  # None are recorded.
  with pytest.raises(ValueError, match=f'bsuite records one environment; use {advice}.$'):
    bsuite_results.check_counts(recording(tmp_path, **{name: value}))


def test_results_are_written_into_a_new_file(tmp_path):
  bsuite_results.check_directory(CONFIG)
  bsuite_results.check_directory(recording(tmp_path / 'new' / 'one'))
  assert not [*tmp_path.iterdir()]
  path = csv_path(str(tmp_path), 'catch/0')
  open(path, 'w').close()
  with pytest.raises(ValueError, match=f'{path} already exists; name a new directory'):
    bsuite_results.check_directory(recording(tmp_path))
  with pytest.raises(ValueError, match=f'^--resume=r: {path} has the first episodes of this run'):
    bsuite_results.check_directory(recording(tmp_path, run_dir='r', resumes=1))
  with pytest.raises(ValueError, match=f'^--env_options=results_dir={path} cannot be written'):
    bsuite_results.check_directory(recording(path))


def test_the_policy_of_a_recorded_run_is_evaluated_without_recording(tmp_path):
  options = bsuite_results.unrecorded('bsuite:catch/0', f'results_dir={tmp_path},episodes=3')
  environment = registry.make('bsuite:catch/0', 2, 0, options)
  environment.reset()
  environment.close()
  assert not [*tmp_path.iterdir()]
  assert bsuite_results.unrecorded('catch', 'rows=5') == 'rows=5'
