"""What a node has logged, of which only what is new is read."""

import math

from rundir.csv_file import CsvWriter
from viewing.node_log import NodeLog

SERIES = ('frames', 'episode_return')


def make(path, rows):
  table = CsvWriter(str(path))
  for row in rows:
    table.write(row)
  return table


def test_series_are_read_whole_and_then_only_what_is_new(tmp_path):
  path = tmp_path / 'learner-0.csv'
  values = [0.5, math.nan, 2.5, math.nan]
  rows = [{'episode_return': v, 'frames': float(i)} for i, v in enumerate(values)]
  table = make(path, rows)
  log = NodeLog(str(path), [SERIES], tail_bytes=10)
  log.update()
  assert log.series == {SERIES: [(0, 0.5), (2, 2.5)]}
  assert log.latest == {'frames': 3, 'episode_return': 2.5}
  before = path.read_bytes()
  path.write_bytes(before.replace(b'0.5', b'9.9'))  # What has been read is not looked at again.
  table.write({'frames': 4.0, 'episode_return': 3.5})
  log.update()
  log.update()
  assert log.series == {SERIES: [(0, 0.5), (2, 2.5), (4, 3.5)]}
  assert log.latest == {'frames': 4, 'episode_return': 3.5}


def test_of_other_files_only_the_end_is_read(tmp_path):
  path = tmp_path / 'actor-0.csv'
  rows = [{'share': i / 8, 'once': 1.0 if i == 0 else math.nan} for i in range(1000)]
  table = make(path, rows)
  log = NodeLog(str(path), [SERIES], tail_bytes=40)
  log.update()
  assert log.latest == {'share': 999 / 8}
  assert log.first('once') == (1.0,) and log.first('nothing') is None
  table.write({'share': 0.25, 'once': 7.0})
  log.update()
  assert log.latest == {'share': 0.25, 'once': 7.0}


def test_a_file_with_further_columns_is_read_again(tmp_path):
  path = tmp_path / 'learner-0.csv'
  make(path, [{'frames': 1.0}])
  log = NodeLog(str(path), [SERIES])
  log.update()
  assert log.series == {SERIES: []}
  make(path, [{'frames': 2.0, 'episode_return': 5.0}])
  log.update()
  assert log.series == {SERIES: [(2, 5)]} and log.latest == {'frames': 2, 'episode_return': 5}


def test_a_file_that_is_not_there_yet_has_nothing(tmp_path):
  log = NodeLog(str(tmp_path / 'actor-0.csv'), [SERIES])
  log.update()
  assert (log.latest, log.series) == ({}, {SERIES: []})
  make(tmp_path / 'actor-0.csv', [{'share': 1.0}])
  log.update()
  assert log.latest == {'share': 1.0}
