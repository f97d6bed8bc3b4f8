"""`benchmarks.calls` at its smallest."""

import pytest

from tests.benchmarks import smoke


@pytest.mark.nightly
def test_calls_are_measured():
  process = smoke.command('calls', '--repeats=1')
  assert process.returncode == 0, process.stderr
  title, *rows = process.stdout.splitlines()
  assert title.split() == [
    'measured',
    'ours',
    'tcp',
    'tls',
    'tls',
    'to',
    'tcp',
    'installed',
    'ratio',
  ]
  kinds = {'10', '100', 'report', 'data', 'futures/s', 'parameters'}
  assert {row.split(',')[0].split()[0] for row in rows} == kinds
  for begin in (20, 31, 42):  # Three columns of our own.
    assert all(float(row[begin : begin + 11].replace(',', '')) > 0 for row in rows)
