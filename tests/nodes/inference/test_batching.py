"""Merging requests."""

import dataclasses

import pytest

from nodes.inference import batching


@dataclasses.dataclass(eq=False)
class Request:
  rows: int = 3


def make(max_rows=8, timeout=60.0):
  return batching.Batcher(max_rows, timeout)


def put(batcher, *rows):
  requests = [Request(n) for n in rows]
  for request in requests:
    batcher.put(request)
  return requests


def test_requests_are_merged_up_to_the_largest_batch_in_order():
  batcher = make()
  requests = put(batcher, 3, 3, 3)
  assert batcher.take() == requests[:2]  # The third would not fit.
  assert batcher.take() == []
  (last,) = put(batcher, 6)
  assert batcher.take() == requests[2:]
  assert batcher.take() == []
  put(batcher, 3)
  assert batcher.take() == [last]


def test_a_batch_that_fits_exactly_leaves_at_once():
  batcher = make(max_rows=6)
  requests = put(batcher, 3, 3)
  assert batcher.take() == requests


def test_a_partial_batch_leaves_after_the_timeout(monkeypatch):
  now = 100.0
  monkeypatch.setattr(batching.time, 'monotonic', lambda: now)
  batcher = make(timeout=2.0)
  assert batcher.seconds_left() is None
  first = put(batcher, 1)
  now = 101.5
  second = put(batcher, 1)
  assert batcher.take() == [] and batcher.seconds_left() == 0.5
  now = 102.5
  assert batcher.seconds_left() == 0.0
  assert batcher.take() == first + second
  assert batcher.seconds_left() is None


def test_a_partial_batch_leaves_at_once_when_no_other_group_can_request():
  batcher = make(max_rows=100)
  batcher.live_groups = 3
  requests = put(batcher, 3, 3)
  assert batcher.take() == []
  requests += put(batcher, 3)
  assert batcher.take() == requests


def test_groups_being_served_are_not_waited_for():
  batcher = make(max_rows=100)
  batcher.live_groups = 3
  served = put(batcher, 3, 3, 3)
  assert batcher.take() == served
  third = put(batcher, 3)  # As if one had been answered already, and its actor asked again.
  assert batcher.take() == third
  batcher.served(served)
  batcher.served(third)
  waits = put(batcher, 3)
  assert batcher.take() == []
  batcher.live_groups = 1
  assert batcher.take() == waits


@pytest.mark.parametrize(
  'smallest, largest, sizes', [(16, 96, [16, 32, 64, 96]), (16, 64, [16, 32, 64]), (5, 5, [5])]
)
def test_bucket_sizes_double_up_to_the_largest(smallest, largest, sizes):
  assert batching.bucket_sizes(smallest, largest) == sizes
