"""Merging requests, each of which is brought by a thread of its own."""

import threading
import time
from concurrent import futures

import numpy as np
import pytest

from agents.types import Timestep
from nodes import batching

DEADLINE = 30


def _request(rows=3):
  return batching.Request(Timestep(np.zeros(rows, np.uint8), None, None, None), 0, wipe=False)


class Server:
  """Answers each request with the batch that it was in; holds batches back if it is told to."""

  def __init__(self, **options):
    self.batches = []
    self.free = threading.Event()
    self.free.set()
    self.error = None
    self.batcher = batching.Batcher(self.serve, **{'max_rows': 8, 'timeout': 60, **options})
    self._pool = futures.ThreadPoolExecutor(16)

  def serve(self, batch):
    self.batches.append(batch)
    self.free.wait(DEADLINE)
    for request in batch:
      request.resolve(batch, self.error)

  def ask(self, request):
    """Returns the future of the answer, once the request waits or is served."""
    future = self._pool.submit(self.batcher.answer, request)
    end = time.monotonic() + DEADLINE
    while not (
      future.done() or request in self.batcher._waiting or any(request in b for b in self.batches)
    ):
      assert time.monotonic() < end
    return future


def test_requests_are_merged_up_to_the_largest_batch_in_order():
  server = Server()
  requests = [_request() for _ in range(4)]
  answers = [server.ask(request) for request in requests]
  for i, batch in enumerate([requests[:2], requests[:2], requests[2:]]):
    if i < 2:
      assert answers[i].result(DEADLINE) == batch  # The third would not fit.
  assert not answers[2].done() and not answers[3].done()
  last = server.ask(_request())
  assert answers[2].result(DEADLINE) == answers[3].result(DEADLINE) == requests[2:]
  assert not last.done()
  server.batcher.close()


def test_a_batch_that_fits_exactly_leaves_at_once():
  server = Server(max_rows=6)
  requests = [_request() for _ in range(2)]
  first, second = (server.ask(request) for request in requests)
  assert first.result(DEADLINE) == second.result(DEADLINE) == requests


def test_a_partial_batch_leaves_after_the_timeout():
  server = Server(timeout=0.05)
  request = _request()
  assert server.ask(request).result(DEADLINE) == [request]


def test_a_partial_batch_leaves_at_once_when_nobody_else_can_ask():
  server = Server(max_rows=100)
  server.batcher.live_streams = 3
  requests = [_request() for _ in range(3)]
  answers = [server.ask(request) for request in requests]
  assert [answer.result(DEADLINE) for answer in answers] == [requests] * 3


def test_streams_being_served_are_not_waited_for():
  server = Server(max_rows=100)
  server.batcher.live_streams = 2
  server.free.clear()
  served = [_request(), _request()]
  answers = [server.ask(request) for request in served]
  third = _request()  # As if one had been answered already, and its actor asked again.
  answers.append(server.ask(third))
  server.free.set()
  assert [answer.result(DEADLINE) for answer in answers] == [served, served, [third]]


def test_what_comes_while_as_much_is_served_as_may_be_leaves_in_one_batch_after_it():
  server = Server(max_rows=6, timeout=0.0, max_in_flight=1)
  server.free.clear()
  first = _request()
  answers = [server.ask(first)]
  waiting = [_request() for _ in range(3)]
  answers += [server.ask(request) for request in waiting]
  assert server.batches == [[first]]
  server.free.set()
  for answer, batch in zip(answers, [[first], waiting[:2], waiting[:2], waiting[2:]], strict=True):
    assert answer.result(DEADLINE) == batch


def test_an_error_reaches_everybody_in_its_batch_and_nobody_else():
  server = Server(max_rows=6)
  server.error = ValueError('broken')
  answers = [server.ask(_request()) for _ in range(2)]
  for answer in answers:
    with pytest.raises(ValueError, match='broken'):
      answer.result(DEADLINE)
  server.error = None
  good = [_request(), _request()]
  answers = [server.ask(request) for request in good]
  assert [answer.result(DEADLINE) for answer in answers] == [good, good]


def test_close_refuses_who_waits_and_who_comes_and_waits_for_who_is_served():
  server = Server(timeout=0.0, max_in_flight=1)
  server.free.clear()
  served, waits = server.ask(_request()), server.ask(_request())
  closing = threading.Thread(target=server.batcher.close)
  closing.start()
  with pytest.raises(batching.Closed):
    waits.result(DEADLINE)
  with pytest.raises(batching.Closed):
    server.ask(_request()).result(DEADLINE)
  assert closing.is_alive() and not served.done()
  server.free.set()
  served.result(DEADLINE)
  closing.join(DEADLINE)
  assert not closing.is_alive()


def test_many_threads_are_all_answered():
  def ask(seed):
    rng = np.random.default_rng(seed)
    for _ in range(200):
      request = _request(rng.integers(1, 4))
      assert request in batcher.answer(request)

  def serve(batch):
    sizes.append(sum(request.rows for request in batch))
    for request in batch:
      request.resolve(batch)

  sizes = []
  batcher = batching.Batcher(serve, max_rows=6, timeout=0.001)
  batcher.live_streams = 8
  with futures.ThreadPoolExecutor(8) as pool:
    for asked in [pool.submit(ask, seed) for seed in range(8)]:
      asked.result(DEADLINE)
  assert max(sizes) <= 6


def test_bucket_sizes_double_up_to_the_largest():
  assert batching.bucket_sizes(16, 96) == [16, 32, 64, 96]
  assert batching.bucket_sizes(16, 64) == [16, 32, 64]
  assert batching.bucket_sizes(5, 5) == [5]
