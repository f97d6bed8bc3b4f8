"""Observers never delay the unrolls."""

import threading

import numpy as np
import pytest

from nodes.unrolls.observers import UnrollObservers
from tests.waiting import DEADLINE, wait_until


class Looker:
  """A node that answers when it is told to."""

  def __init__(self):
    self.seen, self.may_answer = [], threading.Event()
    self.called = threading.Semaphore(0)

  def watch(self, columns):
    self.seen.append(columns)
    self.called.release()
    assert self.may_answer.wait(DEADLINE)


@pytest.fixture
def looker(connect):
  node = Looker()
  yield node, connect(node)
  node.may_answer.set()


def test_an_observer_gets_copies_and_is_skipped_until_it_has_replied(looker):
  node, client = looker
  watchers = UnrollObservers([client])
  actions = np.arange(6, dtype=np.int32).reshape(2, 3)
  watchers.notify({'action': actions})
  actions[:] = 7  # The buffers are used again at once.
  assert node.called.acquire(timeout=DEADLINE)
  watchers.notify({'action': actions})
  watchers.close(timeout=0.1)
  assert len(node.seen) == 1
  np.testing.assert_array_equal(node.seen[0]['action'], [[0, 1, 2], [3, 4, 5]])

  node.may_answer.set()
  wait_until(
    lambda: len(node.seen) > 1, lambda: watchers.notify({'action': actions}), deadline=DEADLINE
  )
  np.testing.assert_array_equal(node.seen[1]['action'], [[7, 7, 7], [7, 7, 7]])
  watchers.close(timeout=DEADLINE)


def test_the_failure_of_an_observer_is_logged(connect, caplog):
  watchers = UnrollObservers([connect(object())])
  columns = {'action': np.zeros(3)}
  wait_until(lambda: 'an observer got no unrolls' in caplog.text, lambda: watchers.notify(columns))
  watchers.close()


def test_nobody_watches():
  watchers = UnrollObservers([])
  watchers.notify({'action': np.zeros(3)})
  watchers.close()
