"""The rate of a count in reports."""

from nodes.runtime.rate import Rate


def test_a_report_between_two_steps_repeats_the_rate_until_the_next_is_overdue():
  rate = Rate()
  assert rate.measure(0, 1.0) == 0.0
  assert rate.measure(256, 1.0) == 128.0
  assert [rate.measure(256, 1.0) for _ in range(3)] == [128.0, 128.0, 256 / 3]
  assert rate.measure(512, 1.0) == 64.0


def test_what_was_counted_before_the_start_is_no_growth():
  rate = Rate()
  rate.start(1000)
  assert rate.measure(1000, 1.0) == 0.0
  assert rate.measure(1003, 1.0) == 1.5
