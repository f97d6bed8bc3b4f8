"""Waiting in tests, with a deadline."""

import contextlib
import threading
import time

# Seconds. Nothing here takes a minute on a quiet machine; a busy one may need ten times as long.
DEADLINE = 600.0


def wait_until(condition, check=lambda: None, deadline=DEADLINE, poll=0.005, explain=lambda: ''):
  """Polls until `condition()` is true; returns its value.

  Args:
    condition: takes no arguments.
    check: called between polls; raises to end the wait.
    deadline: seconds after which the wait fails.
    poll: seconds between polls.
    explain: returns what a wait that fails says.
  """
  end = time.monotonic() + deadline
  while not (value := condition()):
    check()
    assert time.monotonic() < end, f'nothing after {deadline:g} seconds: {explain()}'
    time.sleep(poll)
  return value


def alive(process, explain=lambda: ''):
  """Returns a check that a `subprocess.Popen` still runs; `explain()` is what it says if not."""

  def check():
    assert process.poll() is None, explain()

  return check


@contextlib.contextmanager
def end_of_writers():
  """Waits for the writers of unrolls that the block starts; inside Reverb they would abort Python."""
  before = set(threading.enumerate())
  yield
  wait_until(
    lambda: not [t for t in set(threading.enumerate()) - before if t.name == 'unroll-writer']
  )
