import threading

import numpy as np
import pytest

from agents.types import Timestep
from nodes import batching


def _request(rows):
  return batching.Request(Timestep(np.zeros(rows, np.uint8), None, None, None), 0, wipe=False)


def test_requests_are_merged_up_to_the_largest_batch_in_order():
  queue = batching.RequestQueue(max_rows=8, timeout=60)
  requests = [_request(3) for _ in range(3)]
  for request in requests:
    queue.put(request)
  assert queue.take() == requests[:2]  # The third would not fit.


def test_a_batch_that_fits_exactly_leaves_at_once():
  queue = batching.RequestQueue(max_rows=6, timeout=60)
  requests = [_request(3) for _ in range(3)]
  for request in requests:
    queue.put(request)
  assert queue.take() == requests[:2]


def test_a_partial_batch_leaves_after_the_timeout():
  queue = batching.RequestQueue(max_rows=8, timeout=0.05)
  request = _request(3)
  queue.put(request)
  assert queue.take() == [request]


def test_a_partial_batch_leaves_at_once_when_nobody_else_can_ask():
  queue = batching.RequestQueue(max_rows=100, timeout=60, live_streams=lambda: 3)
  batch = []
  queue.put(_request(3))
  queue.put(_request(3))
  taker = threading.Thread(target=lambda: batch.extend(queue.take()))
  taker.start()
  taker.join(0.2)
  assert not batch
  queue.put(_request(3))
  taker.join(10)
  assert len(batch) == 3


def test_streams_being_served_are_not_waited_for():
  queue = batching.RequestQueue(max_rows=100, timeout=60, live_streams=lambda: 2)
  queue.put(_request(3))
  queue.put(_request(3))
  first = queue.take()
  assert len(first) == 2
  queue.done(first[:1])  # One was answered and asks again; the other is still being served.
  queue.put(_request(3))
  assert len(queue.take()) == 1


def test_close_resolves_waiting_requests_and_ends_take():
  queue = batching.RequestQueue(max_rows=8, timeout=60)
  request = _request(3)
  queue.put(request)
  queue.close()
  for r in (request, _late(queue)):
    with pytest.raises(batching.Closed):
      r.wait()
  with pytest.raises(batching.Closed):
    queue.take()


def _late(queue):
  request = _request(1)
  queue.put(request)
  return request


def test_bucket_sizes_double_up_to_the_largest():
  assert batching.bucket_sizes(16, 96) == [16, 32, 64, 96]
  assert batching.bucket_sizes(16, 64) == [16, 32, 64]
  assert batching.bucket_sizes(5, 5) == [5]
