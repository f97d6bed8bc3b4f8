"""A program trains where observations are bools and the games are the package minatar's."""

import pytest

from tests.programs_under_test import DONE, SMALL, SMALL_REPLAY


@pytest.mark.nightly
def test_bools_go_through_requests_and_replay(train, tmp_path):
  flags = ('--program=r2d2', '--env=minatar:Breakout', '--target_update_period=5')
  process = train(*SMALL, *SMALL_REPLAY, *flags, f'--run_dir={tmp_path / "run"}')
  assert process.returncode == 0, process.stderr
  evaluator_return, _, _, learner_steps, _ = DONE.fullmatch(
    process.stdout.splitlines()[-1]
  ).groups()
  assert float(evaluator_return) >= 0 and int(learner_steps) >= 15
