import contextlib
import errno

import pytest

from launchers import logs
from rundir import files


def test_a_log_that_has_grown_too_large_keeps_its_end_and_its_writer(tmp_path):
  path = tmp_path / 'node.log'
  with open(path, 'ab', buffering=0) as writer:
    writer.write(b'a' * 100 + b'end')
    logs.bound(str(path), max_bytes=102, kept_bytes=4)
    writer.write(b'on')
  assert path.read_bytes() == b'on'
  assert (tmp_path / 'node.log.1').read_bytes() == b'aend'


@pytest.mark.parametrize('code', [errno.ENOSPC, errno.EDQUOT])
def test_a_log_on_a_full_disk_makes_room_for_its_end(tmp_path, monkeypatch, code):
  path, replacing = tmp_path / 'node.log', files.replacing
  path.write_bytes(b'a' * 100 + b'end')

  @contextlib.contextmanager
  def full_while_the_log_is_there(*args):
    if path.stat().st_size:
      raise OSError(code, 'No space left on device')
    with replacing(*args) as file:
      yield file

  monkeypatch.setattr(files, 'replacing', full_while_the_log_is_there)
  logs.bound(str(path), max_bytes=102, kept_bytes=4)
  assert path.read_bytes() == b''
  assert (tmp_path / 'node.log.1').read_bytes() == b'aend'


def test_a_log_of_ordinary_size_is_left_alone(tmp_path):
  path = tmp_path / 'node.log'
  path.write_text('lines\n')
  logs.bound(str(path), max_bytes=6)
  assert path.read_text() == 'lines\n'
  assert list(tmp_path.iterdir()) == [path]


def test_the_tail_is_the_last_lines(tmp_path):
  path = tmp_path / 'node.log'
  path.write_text('one\ntwo\nthree')
  assert logs.tail(str(path), 2) == ['two\n', 'three']
