"""`benchmarks.calls` at its smallest."""

import pytest

from tests.benchmarks import smoke


@pytest.mark.slow
def test_calls_are_measured():
  process = smoke.command('calls', '--repeats=1')
  assert process.returncode == 0, process.stderr
  title, *rows = process.stdout.splitlines()
  assert title.split() == ['measured', 'ours', 'installed', 'ratio']
  kinds = {'10', '100', 'report', 'data', 'futures/s', 'parameters'}
  assert {row.split(',')[0].split()[0] for row in rows} == kinds
  assert all(float(row[20:31].replace(',', '')) > 0 for row in rows)
