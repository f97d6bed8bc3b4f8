"""Checkpoints are due once a period; one that is never done is said and counted as often."""

from nodes.runtime.checkpoint_schedule import CheckpointSchedule
from tests.nodes.evaluation.test_budget import Clock


def test_a_checkpoint_that_stalls_is_logged_and_counted_once_a_period(caplog):
  clock = Clock()
  schedule = CheckpointSchedule(60.0, clock)
  begun = []
  for second in range(400):
    if schedule.due(busy=60 < second < 250):
      begun.append(second)
    clock.now += 1.0
  assert begun == [60, 250, 310, 370]
  assert schedule.missed == 3
  said = [r.getMessage() for r in caplog.records]
  assert len(said) == 3 and said[-1].endswith('is not written after 180 s')


def test_without_a_period_none_is_due():
  clock = Clock()
  schedule = CheckpointSchedule(0.0, clock)
  clock.now += 1e9
  assert not schedule.due(busy=False) and not schedule.due(busy=True)
