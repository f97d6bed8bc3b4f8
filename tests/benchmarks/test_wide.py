"""`benchmarks.wide` at its smallest."""

import pytest

from tests.benchmarks import smoke


@pytest.mark.nightly
def test_what_is_beside_the_data_path_is_measured():
  process = smoke.command('wide', '--nodes=4', '--seconds=4', deadline=300)
  assert process.returncode == 0, process.stderr
  title, row = process.stdout.splitlines()
  assert title.split()[0] == 'actors'
  actors, *figures = row.replace('%', '').split()
  assert actors == '4' and len(figures) == 14
  assert all(float(figure) >= 0 for figure in figures)
