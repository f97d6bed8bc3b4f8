"""Handlers of several calls at once, as `launchpad.batched_handler` makes them."""

import collections
import datetime
import threading

import numpy as np
import pytest

import courier
from courier.handlers.python import pybind
from tests.courier.conftest import DEADLINE

Pair = collections.namedtuple('Pair', 'x y')
LONG = datetime.timedelta(seconds=DEADLINE)
SHORT = datetime.timedelta(milliseconds=20)


def batched(function, size, parallelism=1, timeout=LONG, pad=False):
  handler = pybind.BuildPyCallHandler(function)
  return pybind.BuildBatchedHandlerWrapper('work', handler, size, parallelism, timeout, pad)


@pytest.fixture
def ask(serve):
  """Serves a handler; returns the replies to several calls at once."""

  def ask(handler, *calls):
    server = serve(thread_pool_size=16)
    server.BindHandler('work', handler)
    client = courier.Client(server.address, call_timeout=DEADLINE)
    replies = [client.futures.work(*args, **kwargs) for args, kwargs in calls]
    return [reply.result(DEADLINE) for reply in replies]

  return ask


def calls(*values):
  return [((value,), {}) for value in values]


def test_a_full_batch_is_one_call(ask):
  sizes = []

  def double(values):
    sizes.append(len(values))
    return 2 * values

  assert ask(batched(double, 4), *calls(1, 2, 3, 4)) == [2, 4, 6, 8]
  assert sizes == [4]


def test_arrays_tuples_and_dictionaries_are_batched_element_by_element(ask):
  def work(values, flag):
    assert values['pair'].x.shape == (2, 3) and values['pair'].y == ['a', 'b']
    assert values['both'][0].dtype == np.float64 and values['list'] == [[1, 2], [3]]
    assert flag.dtype == bool
    return {'pair': values['pair'], 'both': (values['both'][0] + 1, values['list']), 'flag': flag}

  def call(fill, letter, number, numbers, flag):
    pair = Pair(np.full(3, fill, np.float32), letter)
    return ({'pair': pair, 'both': (number,), 'list': numbers},), {'flag': flag}

  handler = batched(work, 2)
  replies = ask(handler, call(0, 'a', 1.5, [1, 2], True), call(1, 'b', 2.5, [3], False))
  replies.sort(key=lambda reply: reply['pair'].y)
  for fill, (reply, letter) in enumerate(zip(replies, 'ab', strict=True)):
    assert reply['pair'].y == letter
    np.testing.assert_array_equal(reply['pair'].x, np.full(3, fill, np.float32))
  assert [reply['both'] for reply in replies] == [(2.5, [1, 2]), (3.5, [3])]
  assert [reply['flag'] for reply in replies] == [True, False]


@pytest.mark.parametrize(
  'pad, expected, timeout', [(False, 2, datetime.timedelta(seconds=1)), (True, 5, 1000.0)]
)
def test_a_batch_that_is_not_full_is_handled_after_its_time_and_padded_if_asked(
  ask, pad, expected, timeout
):
  def sizes(values):
    return np.full(len(values), len(values))

  handler = batched(sizes, 5, timeout=timeout, pad=pad)
  replies = ask(handler, *calls(1, 2))
  assert replies == [expected] * 2


def test_at_most_so_many_batches_are_handled_at_once_and_those_that_wait_fill_up(ask):
  begun, go, sizes = threading.Semaphore(0), threading.Event(), []

  def work(values):
    sizes.append(len(values))
    begun.release()
    go.wait(DEADLINE)
    return values

  handler = batched(work, 4, parallelism=2, timeout=SHORT)
  results = []

  def call(value):
    results.append(handler(value))

  threads = []
  for _ in range(2):
    threads.append(threading.Thread(target=call, args=(0,)))
    threads[-1].start()
    assert begun.acquire(timeout=DEADLINE)
  for _ in range(4):
    threads.append(threading.Thread(target=call, args=(1,)))
    threads[-1].start()
  assert not begun.acquire(timeout=0.2)
  go.set()
  for thread in threads:
    thread.join(DEADLINE)
  assert sorted(sizes) == [1, 1, 4] and sorted(results) == [0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(
  'result, message',
  [
    (None, 'return a batch of 2 results'),
    ([1], 'return a batch of 2 results'),
    ((np.zeros(3),), 'return a batch of 2 results'),
    (np.float32(1), 'return a batch of 2 results'),
  ],
)
def test_a_result_that_is_no_batch_fails_every_call(ask, result, message):
  with pytest.raises(courier.StatusNotOk, match=message):
    ask(batched(lambda values: result, 2), *calls(1, 2))


@pytest.mark.parametrize(
  'values',
  [(np.zeros(2), np.zeros(3)), (1, 1.5), ((1,), (1, 2)), ({'a': 1}, {'b': 1}), ({'a': 1}, 2)],
)
def test_calls_that_differ_in_structure_fail(ask, values):
  with pytest.raises(courier.StatusNotOk, match='of a batch need'):
    ask(batched(lambda values: values, 2), *calls(*values))


def test_the_next_batch_succeeds_after_one_that_failed(ask):
  def work(values):
    if values.min() < 0:
      raise ValueError('negative')
    return values

  handler = batched(work, 2)
  with pytest.raises(courier.StatusNotOk, match='negative'):
    ask(handler, *calls(-1, 1))
  assert ask(handler, *calls(1, 2)) == [1, 2]


def test_a_batched_method_is_called_in_its_own_process():
  handler = batched(lambda values: 2 * values, 2)
  results = []
  thread = threading.Thread(
    target=lambda: results.append(pybind.CallHandler(handler, 'work', [3], {}))
  )
  thread.start()
  results.append(pybind.CallHandler(handler, 'work', [3], {}))
  thread.join(DEADLINE)
  assert results == [6, 6]
