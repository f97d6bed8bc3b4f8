"""What waits for room on a full disk."""

import errno
import os

import pytest

from nodes.runtime import full_disk, lifecycle


def _full(*args):
  raise OSError(errno.ENOSPC, 'No space left on device')


def test_it_is_written_once_there_is_room(monkeypatch):
  monkeypatch.setattr(full_disk, '_PAUSE_SECONDS', 0.0)
  tries = []

  def write():
    tries.append(True)
    return 'written' if len(tries) == 3 else _full()

  assert full_disk.write_when_there_is_room(write, lambda: False, 'a file') == 'written'


def test_the_end_of_the_program_and_other_failures_end_the_waiting():
  with pytest.raises(lifecycle.Stopped):
    full_disk.write_when_there_is_room(_full, lambda: True, 'a file')
  with pytest.raises(FileNotFoundError):
    full_disk.write_when_there_is_room(lambda: os.remove('/none/none'), lambda: False, 'a file')
