"""The benchmark of the environments, at its smallest."""

import pytest

from tests.agents.subprocesses import run_python


@pytest.mark.slow
def test_it_prints_what_a_step_costs():
  flags = ('--env=catch,gymnasium:Pendulum-v1', '--num_envs=4', '--seconds=0.01')
  lines = run_python('-m', 'benchmarks.environments', *flags).splitlines()
  assert lines[0] == '4 environments in one batch'
  rows = [line.split() for line in lines[2:]]
  assert [row[0] for row in rows] == ['catch', 'gymnasium:Pendulum-v1']
  assert all(float(row[2]) > 0 for row in rows)
