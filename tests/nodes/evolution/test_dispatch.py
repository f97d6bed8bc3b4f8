"""How the parts of a generation are handed out, with workers that the test controls."""

import threading
from concurrent import futures

import numpy as np
import pytest

from nodes.evolution.dispatch import Dispatcher
from nodes.runtime import lifecycle, rpc
from tests.waiting import wait_until

VECTOR = np.arange(3, dtype=np.float32)
PARTS = [np.full((2, 2), k, np.uint32) for k in range(4)]


def result(seeds, number=0):
  """Returns what a worker returns for seeds; `number` says which worker."""
  returns = np.full((len(seeds), 2), 10.0 * seeds[0, 0] + number, np.float32)
  return returns, np.ones((len(seeds), 2), np.int32), np.zeros(0, np.float32)


class Worker:
  """A client of a worker; the test answers its calls, unless it answers at once."""

  def __init__(self, number=0, answers=True):
    self.futures, self.number, self.answers = self, number, answers
    self.calls = []  # (part, future).

  def evaluate(self, vector, seeds):
    np.testing.assert_array_equal(vector, VECTOR)
    future = futures.Future()
    self.calls.append((int(seeds[0, 0]), future))
    if self.answers:
      future.set_result(result(seeds, self.number))
    return future


class Clock:
  now = 0.0

  def __call__(self):
    return self.now


class Run:
  """Plays a generation in a thread."""

  def __init__(self, dispatcher, generation=0, parts=PARTS):
    self.stop, self.played, self.error = threading.Event(), None, None

    def run():
      try:
        self.played = dispatcher.play(generation, VECTOR, parts, self.stop.is_set)
      except BaseException as error:
        self.error = error

    self.thread = threading.Thread(target=run, daemon=True)
    self.thread.start()

  def end(self):
    wait_until(lambda: not self.thread.is_alive())
    if self.error:
      raise self.error
    return [returns[0, 0] for returns, *_ in self.played]


def calls(worker, count):
  """Waits until a worker has had so many calls; returns their parts."""
  wait_until(lambda: len(worker.calls) >= count)
  return [part for part, _ in worker.calls]


def calls_later(clock, worker, count):
  """Does the same while the clock goes on, until a part is late."""

  def later():
    clock.now += 1.0
    return len(worker.calls) >= count

  wait_until(later)
  return [part for part, _ in worker.calls]


def answer(worker, index):
  part, future = worker.calls[index]
  future.set_result(result(PARTS[part], worker.number))


def test_results_are_in_the_order_of_the_parts_whoever_played_them():
  workers = [Worker(k) for k in range(3)]
  returns = Run(Dispatcher(workers)).end()
  assert [r // 10 for r in returns] == [0, 1, 2, 3]
  assert sorted(part for worker in workers for part, _ in worker.calls) == [0, 1, 2, 3]


def test_a_worker_has_one_part_at_a_time_and_the_next_goes_to_whoever_is_free():
  slow, fast = Worker(1, answers=False), Worker(2, answers=False)
  run = Run(Dispatcher([slow, fast], Clock()))
  assert calls(slow, 1) == [0] and calls(fast, 1) == [1]
  answer(fast, 0)
  assert calls(fast, 2) == [1, 2]
  answer(fast, 1)
  assert calls(fast, 3) == [1, 2, 3] and calls(slow, 1) == [0]
  answer(fast, 2)
  answer(slow, 0)
  assert run.end() == [1.0, 12.0, 22.0, 32.0]


def test_a_part_that_is_late_is_repeated_and_counts_once():
  clock, dead, alive = Clock(), Worker(1, answers=False), Worker(2)
  dispatcher = Dispatcher([dead, alive], clock)
  run = Run(dispatcher)
  assert calls(alive, 3) == [1, 2, 3] and calls(dead, 1) == [0]
  assert calls_later(clock, alive, 4) == [1, 2, 3, 0]
  assert run.end() == [2.0, 12.0, 22.0, 32.0]
  assert dispatcher.repeated == 1

  later = Run(dispatcher, generation=1)
  assert later.end() == [2.0, 12.0, 22.0, 32.0]  # It still plays for the generation before.
  assert len(dead.calls) == 1
  answer(dead, 0)  # The result of that generation counts no more.
  dead.answers = True
  assert [r // 10 for r in Run(dispatcher, generation=2).end()] == [0, 1, 2, 3]
  assert dispatcher.dropped == 1


def test_the_first_of_two_results_counts():
  clock, late, other = Clock(), Worker(1, answers=False), Worker(2, answers=False)
  dispatcher = Dispatcher([late, other], clock)
  run = Run(dispatcher, parts=PARTS[:2])
  assert calls(late, 1) == [0] and calls(other, 1) == [1]
  answer(other, 0)
  assert calls_later(clock, other, 2) == [1, 0]
  clock.now += 1000.0  # Two have it; nobody begins it a third time.
  answer(late, 0)
  assert run.end() == [1.0, 12.0]


def test_a_part_of_a_worker_that_is_away_goes_to_another_one():
  away, alive = Worker(1, answers=False), Worker(2, answers=False)
  run = Run(Dispatcher([away, alive], Clock()))
  assert calls(away, 1) == [0] and calls(alive, 1) == [1]
  away.calls[0][1].set_exception(rpc.retry_later_error())
  answer(alive, 0)
  assert calls(alive, 2) == [1, 0]  # Before those that nobody has had.
  alive.answers = True
  answer(alive, 1)
  assert run.end() == [2.0, 12.0, 22.0, 32.0]


@pytest.mark.parametrize(
  'returned, words',
  [
    (ValueError('a mistake'), 'a mistake'),
    ((np.zeros((3, 2)), np.zeros((3, 2)), np.zeros(0)), r'must be finite and \(2, 2\)'),
    ((np.full((2, 2), np.nan), np.zeros((2, 2)), np.zeros(0)), 'must be finite'),
    ((np.zeros((2, 2)), np.zeros((2, 2)), np.full(7, np.inf)), 'must be finite'),
  ],
)
def test_an_error_or_a_wrong_result_ends_the_run(returned, words):
  worker = Worker(answers=False)
  run = Run(Dispatcher([worker]))
  calls(worker, 1)
  if isinstance(returned, Exception):
    worker.calls[0][1].set_exception(returned)
  else:
    worker.calls[0][1].set_result(returned)
  with pytest.raises(ValueError, match=words):
    run.end()


def test_a_stop_ends_the_wait():
  worker = Worker(answers=False)
  run = Run(Dispatcher([worker]))
  calls(worker, 1)
  run.stop.set()
  with pytest.raises(lifecycle.Stopped):
    run.end()
