"""The share of time that something takes."""

from nodes.runtime.time_share import TimeShare


def test_what_goes_on_counts_in_the_measurements_during_it():
  now = [0.0]
  share = TimeShare(lambda: now[0])
  with share.counted():
    now[0] = 2.0
    assert share.measure(2.0) == 1.0
    now[0] = 3.0
  now[0] = 4.0
  assert share.measure(2.0) == 0.5
  now[0] = 6.0
  assert share.measure(2.0) == 0.0
