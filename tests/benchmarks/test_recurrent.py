"""The benchmark of updates with each core, at its smallest."""

import pytest

from agents.networks.config import CORES
from tests.benchmarks import smoke


@pytest.mark.nightly  # It compiles an update for each core.
def test_it_measures_an_update_with_each_core(tmp_path):
  flags = ('--lengths=4', '--repeats=1', '--stage_seconds=0.01', '--core_size=4', '--batch_size=2')
  name = 'recurrent-r2d2-catch'
  lines, record = smoke.run('recurrent', tmp_path, name, '--env=catch', *flags)
  names = [core for core in CORES if core != 'none']
  assert [line.split()[:2] for line in lines[2:5]] == [['4', core] for core in names]
  for core, row in zip(names, record['results'], strict=True):
    assert row['core'] == core and row['update_seconds'] > 0 and row['answer_seconds'] > 0
    assert row['timings'] == [[row['update_seconds'], row['answer_seconds']]]


@pytest.mark.nightly
def test_a_length_that_is_no_number_is_rejected():
  process = smoke.command('recurrent', '--lengths=2,x')
  assert process.returncode == 2
  assert 'error: --lengths=2,x must be whole numbers' in process.stderr
