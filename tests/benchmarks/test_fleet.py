"""The benchmark of central inference, at its smallest."""

import pytest

from benchmarks import fleet_driver
from tests.agents.subprocesses import run_python
from tests.benchmarks import smoke


@pytest.mark.nightly
def test_light_actors_are_answered_and_timed(tmp_path):
  flags = ('--env=catch', '--fleet=6', '--envs_per_actor=4', '--seconds=1', '--delay_ms=20')
  lines, record = smoke.run('fleet', tmp_path, 'fleet-sebulba-catch', *flags)
  (row,) = record['rows']
  assert lines[2].split()[0] == '6'
  assert row['environments'] == 24 and row['inference_batch_size'] == 12
  assert row['offered_steps_per_second'] == pytest.approx(24 / 0.02)
  assert 0 < row['steps_per_second'] <= row['offered_steps_per_second']
  assert 0 < row['latency_p50_ms'] <= row['latency_p99_ms']
  assert 0 < row['inference_batch_fill'] <= 1
  assert len(row['drivers_busy']) == 2 and row['node_busy'] > 0
  assert record['saturated_from'] == 6


def test_recorded_timesteps_are_those_of_the_environment():
  timesteps = fleet_driver.record(fleet_driver.Task('', 'catch', '', 3, (0,), 0.0))
  assert [int(t.step_type[0]) for t in timesteps[:11]] == [0, *[1] * 8, 2, 0]
  assert all(t.observation.shape[0] == 3 for t in timesteps)


def test_a_driver_stays_thin():
  loaded = run_python('-c', 'import sys, benchmarks.fleet_driver; print(*sys.modules)').split()
  assert not {'jax', 'tensorflow', 'reverb', 'pandas'} & set(loaded)
