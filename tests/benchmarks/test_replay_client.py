"""`benchmarks.replay_client` at its smallest."""

import pytest

from tests.benchmarks import smoke


@pytest.mark.nightly
def test_the_client_is_measured_beside_reverbs_own():
  process = smoke.command('replay_client', '--repeats=1', '--kilobytes=1')
  assert process.returncode == 0, process.stderr
  title, *rows = process.stdout.splitlines()
  assert title.split()[:4] == ['items', 'call', 'own', 'reverb']
  assert len(rows) == 2
  assert all(float(row[25:34].replace(',', '')) > 0 for row in rows)
