"""One small program for the tests of two minutes: launch.py with every node a thread of its process."""

from tests.programs_under_test import CATCH_RETURNS, SMALL, assert_ended, launch


def test_sebulba_trains_in_one_process(tmp_path):
  run_dir = tmp_path / 'run'
  process = launch(*SMALL, '--lp_launch_type=local_mt', '--mlp_sizes=16', f'--run_dir={run_dir}')
  assert process.returncode == 0, process.stderr
  found = assert_ended(run_dir, process.stdout, 'sebulba', 'actor', 1, 'inference_learner')
  assert found in CATCH_RETURNS
