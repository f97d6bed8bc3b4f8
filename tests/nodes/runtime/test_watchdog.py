"""Work that hangs in a thread is reported by `check`."""

import pytest

from nodes.runtime.watchdog import LIMIT_SECONDS, Watchdog
from tests.nodes.evaluation.test_budget import Clock


def check_for(watch, clock, seconds):
  for _ in range(int(seconds)):
    clock.now += 1.0
    watch.check()


def test_a_piece_of_work_that_takes_too_long_hangs():
  clock = Clock()
  watch = Watchdog('a batch', clock)
  for _ in range(3):
    with watch:
      check_for(watch, clock, LIMIT_SECONDS)
  with watch:
    check_for(watch, clock, LIMIT_SECONDS)
    with pytest.raises(TimeoutError, match='a batch has taken longer than 300 s: it hangs'):
      check_for(watch, clock, 2)
  watch.check()


def test_a_thread_without_work_does_not_hang():
  clock = Clock()
  check_for(Watchdog('a batch', clock), clock, 10 * LIMIT_SECONDS)


def test_a_process_that_was_suspended_does_not_hang():
  clock = Clock()
  watch = Watchdog('a batch', clock)
  with watch:
    watch.check()
    clock.now += 10 * LIMIT_SECONDS
    watch.check()
