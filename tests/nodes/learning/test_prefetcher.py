"""What the prefetcher reads ahead, and how it fails."""

import itertools
import threading

import pytest

from nodes.learning.prefetcher import DevicePrefetcher
from tests.waiting import DEADLINE, wait_until


def test_it_reads_a_batch_ahead_and_no_other_before_that_is_taken():
  read, resumed = [], threading.Semaphore(0)

  def batches():
    for number in itertools.count():
      read.append(number)
      yield number
      resumed.release()  # The prefetcher has come back for the next batch.

  prefetcher = DevicePrefetcher(batches(), lambda batch: batch)
  wait_until(lambda: read == [0])
  assert not resumed.acquire(timeout=0.5), 'a second batch is read, which grows old'
  assert prefetcher.next(lambda: None) == 0
  assert resumed.acquire(timeout=DEADLINE)
  assert [prefetcher.next(lambda: None) for _ in range(5)] == [1, 2, 3, 4, 5]


def test_an_error_of_the_reader_reaches_the_learner():
  def batches():
    yield 0
    raise ValueError('no such table')

  prefetcher = DevicePrefetcher(batches(), lambda batch: batch)
  assert prefetcher.next(lambda: None) == 0
  with pytest.raises(ValueError, match='no such table'):
    prefetcher.next(lambda: None)
