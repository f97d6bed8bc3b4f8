"""Provides a full pipe, and lets pytest explain failures in the scenarios that test modules share."""

import os
import threading

import pytest

from launchers import streams

pytest.register_assert_rewrite('tests.launchers.contract', 'tests.launchers.gossip')


class Unread:
  """A pipe that is full, because nothing reads it.

  Attributes:
    file: its end for writing.
  """

  def __init__(self):
    self._reader, writer = os.pipe()
    os.set_blocking(writer, False)
    self._filling = 0
    try:
      while True:
        self._filling += os.write(writer, b'-' * 4096)
    except BlockingIOError:
      os.set_blocking(writer, True)
    self.file = open(writer, 'w')  # noqa: SIM115  is closed by `text`

  def text(self):
    """Reads the pipe at last; returns what was written to it besides what fills it."""
    with open(self._reader, 'rb') as reader:
      found = []
      thread = threading.Thread(target=lambda: found.append(reader.read()))
      thread.start()
      streams.flush()
      self.file.close()
      thread.join()
    return found[0][self._filling :].decode()


@pytest.fixture
def unread():
  """A full pipe."""
  return Unread()
