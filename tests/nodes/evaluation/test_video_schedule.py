"""Videos come every so often, and within a share of the time."""

import pytest

from nodes.evaluation.budget import FREE_SECONDS
from nodes.evaluation.video_schedule import VideoSchedule
from nodes.runtime import lifecycle
from tests.nodes.evaluation.test_budget import Clock


def recording_of(clock, seconds, seen=None):
  """Returns what records for some seconds."""

  def record(should_stop, is_out_of_time):
    clock.now += seconds
    if seen is not None:
      seen.append(is_out_of_time())
    return b'GIF'

  return record


def running():
  return False


def test_a_video_is_due_once_a_period_has_passed():
  clock = Clock()
  videos = VideoSchedule(60.0, 1.0, 0.0, clock)
  assert videos.due()
  assert videos.make(recording_of(clock, 3.0), running, final=False) == b'GIF'
  assert videos.seconds == 3.0 and not videos.due()
  clock.now += 56.9
  assert not videos.due()
  clock.now += 0.1
  assert videos.due()


def test_recording_takes_its_share_of_the_time_and_no_second_is_free():
  clock, seen = Clock(), []
  videos = VideoSchedule(1.0, 0.05, 0.0, clock)
  videos.make(recording_of(clock, FREE_SECONDS, seen), running, final=False)
  assert seen == [True]  # It had no more time than that.
  clock.now = 100.0 + FREE_SECONDS / 0.05 - 0.1
  assert not videos.due()
  clock.now += 0.2
  assert videos.due()
  clock.now += 1000.0  # The video after a long time may take 50 s.
  videos.make(recording_of(clock, 49.0, seen), running, final=False)
  assert seen == [True, False]


def test_an_error_ends_the_videos_and_not_the_run():
  clock, calls = Clock(), []

  def record(should_stop, is_out_of_time):
    calls.append(should_stop)
    raise OSError('no display')

  videos = VideoSchedule(1.0, 1.0, 0.0, clock)
  assert videos.make(record, running, final=False) is None
  assert videos.make(record, running, final=True) is None
  assert calls == [running]


def test_a_stop_of_the_program_is_no_error():
  def record(should_stop, is_out_of_time):
    raise lifecycle.Stopped

  with pytest.raises(lifecycle.Stopped):
    VideoSchedule(1.0, 1.0, 0.0, Clock()).make(record, running, final=False)
