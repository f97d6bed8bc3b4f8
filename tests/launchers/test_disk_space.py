import os
import tempfile

import pytest

from launchers import disk_space


def test_released_output_takes_no_space_and_later_output_keeps_its_offset():
  with tempfile.TemporaryFile() as file:
    number = file.fileno()
    os.write(number, b'x' * (3 << 20))
    os.write(number, b'new')
    used = os.fstat(number).st_blocks
    if not disk_space.release(number, 3 << 20):
      pytest.skip('the file system of temporary files makes no holes')
    os.write(number, b'er')
    assert os.pread(number, 100, 3 << 20) == b'newer'
    assert os.fstat(number).st_blocks < used / 10


def test_a_reader_that_is_far_behind_leaves_out_all_but_the_end():
  with tempfile.TemporaryFile() as file:
    number = file.fileno()
    os.truncate(number, disk_space.MAX_BEHIND)
    start, offset = disk_space.read(number, 0)
    assert not start.strip(b'\0') and offset == len(start)
    os.truncate(number, offset + disk_space.MAX_BEHIND + 1)
    os.lseek(number, 0, os.SEEK_END)
    os.write(number, b'end')
    output, offset = disk_space.read(number, offset)
    left_out = disk_space.MAX_BEHIND + 4 - disk_space.KEPT_BYTES
    assert output.startswith(f'\n({left_out:,} bytes of output are left out here)\n'.encode())
    while chunk := disk_space.read(number, offset)[0]:
      output, offset = output + chunk, offset + len(chunk)
    assert output.endswith(b'\0end') and offset == os.fstat(number).st_size
    assert len(output.lstrip(b'\n').partition(b'\n')[2]) == disk_space.KEPT_BYTES
