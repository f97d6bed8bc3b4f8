"""The benchmark of MuZero's search, at its smallest."""

import pytest

from tests.benchmarks import smoke


@pytest.mark.nightly  # It compiles a search for each size.
def test_it_measures_an_answer_at_each_size(tmp_path):
  flags = ('--batches=1,4', '--simulations=2', '--repeats=1', '--stage_seconds=0.01')
  lines, record = smoke.run('search', tmp_path, 'search-muzero-catch', '--env=catch', *flags)
  assert [line.split()[:2] for line in lines[2:4]] == [['1', '2'], ['4', '2']]
  for batch, row in zip((1, 4), record['results'], strict=True):
    assert row['answer_seconds'] > 0
    assert row['simulations_per_second'] == pytest.approx(2 * batch / row['answer_seconds'])
    assert row['environments_per_second'] == pytest.approx(batch / row['answer_seconds'])


@pytest.mark.nightly
@pytest.mark.parametrize('flag', ['--batches=0', '--simulations=2,x'])
def test_a_size_that_is_no_positive_number_is_rejected(flag):
  process = smoke.command('search', flag)
  assert process.returncode == 2
  assert f'error: {flag} must be positive whole numbers' in process.stderr
