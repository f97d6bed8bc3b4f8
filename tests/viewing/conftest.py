"""Runs to look at."""

import pytest

from tests.test_launch import SMALL, launch


@pytest.fixture(scope='session')
def finished_run(tmp_path_factory):
  """The directory of a short run of Sebulba on Catch that has come to its end."""
  run_dir = tmp_path_factory.mktemp('finished') / 'run'
  process = launch(*SMALL, '--checkpoint_period=0.2', f'--run_dir={run_dir}', timeout=240)
  assert process.returncode == 0, process.stderr
  return run_dir
