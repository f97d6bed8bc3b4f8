import os

import bsuite
import numpy as np
import pytest
from bsuite.logging import csv_load

from environments import registry
from environments.base import Exhausted
from environments.bsuite_record import csv_path


def _play(environment):
  """Plays action 1 to the end of the experiment; returns the rows that were LAST."""
  environment.reset()
  lasts = 0
  while True:
    try:
      lasts += environment.step(np.ones(1, np.int32)).step_type[0] == 2
    except Exhausted:
      return lasts


def test_the_file_is_what_bsuite_writes(tmp_path):
  theirs = bsuite.load_and_record('memory_len/3', str(tmp_path / 'theirs'))
  for _ in range(60):
    theirs.reset()
    while not theirs.step(1).last():
      pass
  ours = registry.make('bsuite:memory_len/3', 1, 5, f'results_dir={tmp_path}/ours,episodes=60')
  assert _play(ours) == 60
  name = os.path.basename(csv_path('', 'memory_len/3'))
  text = (tmp_path / 'ours' / name).read_text()
  assert text == (tmp_path / 'theirs' / name).read_text()
  assert text.splitlines()[-1].split(',')[1] == '60'
  table, _ = csv_load.load_bsuite(str(tmp_path / 'ours'))
  assert set(table.bsuite_id) == {'memory_len/3'}


def test_without_a_number_there_are_as_many_episodes_as_bsuite_asks_for(tmp_path):
  environment = registry.make('bsuite:bandit/0', 1, 0, f'results_dir={tmp_path}')
  assert _play(environment) == bsuite.sweep.EPISODES['bandit/0'] == 10_000


def test_an_environment_that_is_not_reset_writes_nothing(tmp_path):
  options = f'results_dir={tmp_path}/results'
  registry.trial('bsuite:catch/0', options)
  registry.make_spec('bsuite:catch/0', options)
  assert not list(tmp_path.iterdir())


def test_results_are_of_one_environment(tmp_path):
  options = f'results_dir={tmp_path}'
  first, second = (registry.make('bsuite:catch/0', 1, seed, options) for seed in (0, 1))
  first.reset()
  with pytest.raises(ValueError, match=r'already exists.*--num_actors=1'):
    second.reset()
  with pytest.raises(ValueError, match='bsuite records one environment; use --num_actors=1'):
    registry.make('bsuite:catch/0', 2, 0, options)


@pytest.mark.parametrize('options', ['episodes=3', 'results_dir=x,episodes=-1'])
def test_episodes_without_a_meaning_are_rejected(options):
  with pytest.raises(ValueError, match='--env_options=episodes='):
    registry.trial('bsuite:catch/0', options)
