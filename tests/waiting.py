"""Waiting in tests, with a deadline."""

import contextlib
import threading
import time


def wait_until(condition, check=lambda: None, deadline=60.0):
  """Polls until `condition()` is true; returns its value.

  Args:
    condition: takes no arguments.
    check: called between polls; raises to end the wait.
    deadline: seconds after which the wait fails.
  """
  end = time.monotonic() + deadline
  while not (value := condition()):
    check()
    assert time.monotonic() < end, f'nothing after {deadline:g} seconds'
    time.sleep(0.005)
  return value


@contextlib.contextmanager
def end_of_writers():
  """Waits for the writers of unrolls that the block starts; inside Reverb they would abort Python."""
  before = set(threading.enumerate())
  yield
  wait_until(
    lambda: not [t for t in set(threading.enumerate()) - before if t.name == 'unroll-writer']
  )
