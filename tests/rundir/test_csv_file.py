"""CSV files of numbers: whole rows, under the header to which they belong; what is new in them."""

import csv
import errno
import os

import pytest

from rundir import appending, csv_file
from rundir.csv_file import CsvReader, CsvWriter


@pytest.fixture
def path(tmp_path):
  return str(tmp_path / 'logs' / 'node-0.csv')


def write(path, *rows):
  table = CsvWriter(path)
  for row in rows:
    table.write(row)
  table.close()


def read(path):
  with open(path, newline='') as f:
    return list(csv.DictReader(f))


def test_rows_with_other_columns_mean_the_same_in_every_column(path):
  write(path, {'b': 1.0, 'c': 2.0})
  write(path, {'a': 3.0, 'c': 4.0}, {'b': 5.0}, {'d': 6.0})
  rows = [
    {'b': '1.0', 'c': '2.0', 'a': '', 'd': ''},
    {'b': '', 'c': '4.0', 'a': '3.0', 'd': ''},
    {'b': '5.0', 'c': '', 'a': '', 'd': ''},
    {'b': '', 'c': '', 'a': '', 'd': '6.0'},
  ]
  assert read(path) == rows
  assert list(csv_file.numbers(path, ['c'])) == [(2,), (4,)]


def test_a_file_of_an_earlier_version_is_continued(path):
  write(path)
  with open(path, 'w', newline='') as f:  # As acme's logger writes it.
    f.write('a,b\r\n1.0,2.0\r\n3.0,nan\r\n')
  write(path, {'b': 5.0, 'a': 4.0}, {'c': 6.0})
  assert list(csv_file.numbers(path, ['b', 'a'])) == [(2, 1), (5, 4)]
  assert [row['c'] for row in read(path)] == ['', '', '', '6.0']


@pytest.mark.parametrize('adds_a_column', [False, True])
def test_a_file_that_cannot_be_opened_leaves_no_other_open_and_is_continued_later(
  path, monkeypatch, adds_a_column
):
  def refuse(path):
    raise OSError(errno.EMFILE, 'Too many open files')

  write(path, {'a': 1.0})
  table = CsvWriter(path) if adds_a_column else None
  before = len(os.listdir('/proc/self/fd'))
  with monkeypatch.context() as patch:
    patch.setattr(csv_file, 'header', refuse)
    for _ in range(3):
      with pytest.raises(OSError, match='Too many open files'):
        table.write({'b': 2.0}) if table else CsvWriter(path)
  assert len(os.listdir('/proc/self/fd')) <= before
  table = table or CsvWriter(path)
  table.write({'b': 3.0})
  table.close()
  assert read(path) == [{'a': '1.0', 'b': ''}, {'a': '', 'b': '3.0'}]


@pytest.mark.parametrize('cut', ['3.0,4', '3.0,4.0', '3'])
def test_a_row_cut_short_by_a_kill_is_not_read(path, cut):
  write(path, {'a': 1.0, 'b': 2.0})
  with open(path, 'a') as f:
    f.write(cut)
  assert list(csv_file.numbers(path, ['a'])) == [(1,)]
  write(path, {'a': 5.0, 'b': 6.0})
  assert list(csv_file.numbers(path, ['a', 'b'])) == [(1, 2), (5, 6)]


def test_a_header_cut_short_by_a_kill_is_not_read(path):
  write(path)
  with open(path, 'w') as f:
    f.write('a,lo')
  assert csv_file.header(path) == [] and CsvReader(path).read() == []
  write(path, {'a': 5.0, 'loss': 6.0})
  assert list(csv_file.numbers(path, ['a', 'loss'])) == [(5, 6)]


def test_only_what_has_been_added_is_read(path):
  reader = CsvReader(path)
  assert reader.read() == []
  table = CsvWriter(path)
  table.write({'a': 1.0, 'b': 2.0})
  assert reader.read() == [[b'1.0', b'2.0']]
  assert reader.read() == []
  with open(path, 'r+b') as f:  # What has been read is not looked at again.
    f.seek(4)
    f.write(b'x')
  table.write({'a': 3.0, 'b': 4.0})
  table.write({'a': 5.0, 'b': 6.0})
  assert reader.read(limit=1) == [[b'3.0', b'4.0']]
  with open(path, 'ab') as f:
    f.write(b'7.0')
  assert reader.read() == [[b'5.0', b'6.0']]
  assert reader.restarts == 0


def test_a_replaced_file_is_read_from_its_beginning(path):
  write(path, {'a': 1.0}, {'a': 2.0})
  reader = CsvReader(path)
  assert len(reader.read()) == 2
  write(path, {'b': 3.0})
  assert (len(reader.read()), reader.columns, reader.restarts) == (3, ['a', 'b'], 1)
  with open(path, 'w') as f:
    f.write('a,b\n')
  write(path, {'a': 4.0})
  assert (reader.read(), reader.restarts) == ([[b'4.0', b'']], 2)


def test_the_tail_has_whole_rows(path):
  write(path, *({'a': float(i), 'b': 0.5} for i in range(100)))
  for size in (1, 9, 10, 30):
    reader = CsvReader(path)
    reader.skip_to_tail(size)
    values = list(csv_file.finite(reader.read(), reader.columns, ['a', 'b']))
    assert values == [(float(i), 0.5) for i in range(100 - len(values), 100)]
    assert len(values) == size // 9
  reader = CsvReader(path)
  reader.skip_to_tail(1 << 20)
  assert len(reader.read()) == 100


def test_the_end_of_a_line_is_found_however_far_from_the_end(tmp_path, monkeypatch):
  monkeypatch.setattr(appending, '_BLOCK', 4)
  for content, kept in ((b'ab\ncdefghijk', b'ab\n'), (b'abcdefghijk', b''), (b'a\nb\n', b'a\nb\n')):
    (tmp_path / 'f').write_bytes(content)
    file = appending.AppendedFile(str(tmp_path / 'f'))
    file.drop_unfinished_line()
    file.close()
    assert (tmp_path / 'f').read_bytes() == kept


@pytest.mark.parametrize(
  'whole, first, last',
  [
    (1 << 20, 19.5, 1979.5),  # Of 40 rows each.
    (1 << 12, 5.5, 1995.5),  # Of the 12 and 8 rows that 81 bytes have room for.
  ],
)
def test_a_thinned_file_covers_all_of_it(tmp_path, whole, first, last):
  path = tmp_path / 'a.csv'
  rows = ''.join(f'{k},{k % 2},{"" if k % 3 else 5.0}\n' for k in range(2000))
  path.write_text(f'x,y,z\n{rows}7,')  # The last row is not complete.
  columns, means = csv_file.thinned(str(path), 50, whole)
  assert columns == ['x', 'y', 'z'] and 45 <= len(means) <= 50
  xs = [row[0] for row in means]
  assert xs == sorted(xs) and xs[0] < 50 and xs[-1] > 1950
  assert (means[0][:2], means[-1][:2]) == ([first, 0.5], [last, 0.5])
  assert all(row[2] == 5.0 for row in means)  # Cells without a number are left out.
  assert csv_file.thinned(str(tmp_path / 'none.csv'), 50) == ([], [])


@pytest.mark.parametrize('header', [b'a,\0b', b'a\rb', b'', b'a' * 200_000])
def test_a_file_with_a_damaged_header_is_set_aside_and_read_as_empty(tmp_path, header):
  path = tmp_path / 'a.csv'
  path.write_bytes(header + b'\n1,2\n')
  assert csv_file.header(str(path)) == [] and CsvReader(str(path)).read() == []
  CsvWriter(str(path)).write({'a': 3})
  assert path.read_text() == 'a\n3\n'
  assert (tmp_path / 'a.csv.damaged').read_bytes() == header + b'\n1,2\n'
