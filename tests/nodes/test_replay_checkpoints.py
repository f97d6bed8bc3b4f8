"""Replay checkpoints, with real Reverb servers: the last two kept, a damaged one passed over."""

import errno
import os
import re
import shutil
import threading
import types

import numpy as np
import pytest

from nodes import replay
from nodes.runtime import activity, lifecycle
from nodes.runtime.checkpoint_schedule import CheckpointSchedule
from nodes.unrolls import tables
from nodes.unrolls.replay_client import Writer
from rundir import files
from tests.nodes.replay_size import replay_size
from tests.ports import unused_port
from tests.waiting import wait_until

TABLES = tables.prioritized_table(
  max_size=1000,
  min_size=1,
  samples_per_insert=1e6,
  error_buffer=1e9,
  priority_exponent=0.9,
)


@pytest.fixture
def start(tmp_path):
  """Starts a replay server in `tmp_path / 'replay'`; the one before has ended."""
  servers, port = [], unused_port()

  def start(count=0, checkpoint=True):
    """Inserts `count` items, and writes a checkpoint of all that there is then."""
    stop()
    server = replay.ReplayServer(TABLES, None, 'replay/0', str(tmp_path / 'replay'), 0.0, port)
    servers.append(server)
    writer = Writer(f'localhost:{port}')
    for i in range(count):
      writer.insert([np.full(4000, i, np.uint8)], {tables.UNROLLS: 1.0})
    assert writer.flush(60)
    writer.close()
    if count and checkpoint:
      server.write_checkpoint()
    return server

  def stop():
    while servers:
      servers.pop().close()

  yield start
  stop()


def names(tmp_path):
  return sorted(os.listdir(tmp_path / 'replay'))


def test_the_last_two_are_kept_and_the_newest_is_loaded_whatever_the_clock_says(start, tmp_path):
  server = start(1)
  server.write_checkpoint()
  assert names(tmp_path) == ['000000000001', '000000000002', 'next']
  future = tmp_path / 'replay' / '000000000002'
  os.utime(future, (1e10, 1e10))
  assert replay_size(start(2).address) == 3
  assert names(tmp_path) == ['000000000002', '000000000003', 'next']
  server = start()
  assert replay_size(server.address) == 3 and os.listdir(tmp_path / 'replay' / 'next') == []


def truncate(directory):
  path = directory / 'chunks.tfrecord'
  os.truncate(path, path.stat().st_size // 2)


def flip(directory):
  content = bytearray((directory / 'chunks.tfrecord').read_bytes())
  content[-50] ^= 1
  (directory / 'chunks.tfrecord').write_bytes(content)


def empty(directory):
  (directory / 'items.tfrecord').write_bytes(b'')


def lose(directory):
  (directory / 'tables.tfrecord').unlink()


def interrupt(directory):
  (directory / 'DONE').unlink()


def forget(directory):
  (directory / 'digests.json').unlink()


def garble(directory):
  (directory / 'digests.json').write_text('{')


def unlist(directory):
  (directory / 'digests.json').write_text('{}')


def no_object(directory):
  (directory / 'digests.json').write_text('[]')


def nest(directory):
  (directory / 'digests.json').write_text('[' * 100_000)


@pytest.mark.parametrize(
  'damage', [truncate, flip, empty, lose, interrupt, forget, garble, unlist, no_object, nest]
)
def test_a_damaged_one_is_skipped_for_the_one_before(start, tmp_path, caplog, damage):
  start(2).write_checkpoint()
  server = start(3)
  assert names(tmp_path) == ['000000000002', '000000000003', 'next']
  server.close()
  damage(tmp_path / 'replay' / '000000000003')
  server = start()
  assert replay_size(server.address) == 2
  (warning,) = [m for m in caplog.messages if 'is damaged' in m]
  assert warning.startswith(f'{tmp_path}/replay/000000000003 is damaged: ')
  server.write_checkpoint()  # The damaged one does not count among the last two.
  assert names(tmp_path) == ['000000000002', '000000000004', 'next']


def test_where_none_is_usable_one_sentence_says_so_and_nothing_is_left_behind(start, tmp_path):
  start(2)
  server = start(1)
  server.close()
  for directory in ('000000000001', '000000000002'):
    truncate(tmp_path / 'replay' / directory)
  with pytest.raises(lifecycle.NonRetryableError) as raised:
    start()
  assert re.fullmatch(
    r'none of the 2 replay checkpoints is usable: .*/replay/000000000002 is damaged: chunks.tfrecord '
    r'is not what was written; remove them to start with an empty replay\.',
    str(raised.value),
  )
  for directory in ('000000000001', '000000000002'):
    shutil.rmtree(tmp_path / 'replay' / directory)
  assert replay_size(start().address) == 0  # At the same port.


def _as_reverb_wrote_it(tmp_path, number, time):
  """Makes a checkpoint one of an earlier version of Launchpod."""
  old = tmp_path / 'replay' / time
  os.rename(tmp_path / 'replay' / number, old)
  (old / 'digests.json').unlink()
  return old


def test_a_checkpoint_of_an_earlier_version_is_loaded_and_leaves_in_its_turn(start, tmp_path):
  start(4).close()
  time = '2026-11-22T07:46:16.28964926+00:00'
  old = _as_reverb_wrote_it(tmp_path, '000000000001', time)
  server = start()
  assert replay_size(server.address) == 4
  server.write_checkpoint()
  assert names(tmp_path) == ['000000000001', time, 'next']
  server.write_checkpoint()
  assert names(tmp_path) == ['000000000001', '000000000002', 'next'] and not old.exists()


def test_damage_that_only_reverb_detects_is_skipped_too(start, tmp_path, caplog):
  start(2)
  start(1).close()
  _as_reverb_wrote_it(tmp_path, '000000000001', '2026-11-22T07:00:00.1+00:00')
  newer = _as_reverb_wrote_it(tmp_path, '000000000002', '2026-11-22T08:00:00.1+00:00')
  flip(newer)  # Half of a compressed file may end where a record does.
  server = start()
  assert replay_size(server.address) == 2
  assert f'{newer} is damaged: Reverb cannot read it' in caplog.text


def test_one_that_fails_is_counted_and_leaves_the_earlier_ones(start, tmp_path, monkeypatch):
  server = start(1)
  sync = files.sync

  def full(path):
    raise OSError(errno.ENOSPC, 'No space left on device', path)

  monkeypatch.setattr(files, 'sync', full)
  server.write_checkpoint()
  assert server.measure(1.0) == {'checkpoint_failures': 1.0}
  assert names(tmp_path) == ['000000000001', 'next']
  assert os.listdir(tmp_path / 'replay' / 'next') == []
  monkeypatch.setattr(files, 'sync', sync)
  server.write_checkpoint()
  assert names(tmp_path) == ['000000000001', '000000000002', 'next']


@pytest.mark.parametrize('missing, earlier', [(0, [1, 2]), (1, [2])])
def test_the_one_before_the_last_makes_room_on_a_full_disk(
  start, tmp_path, monkeypatch, missing, earlier
):
  server = start(1)
  server.write_checkpoint()
  newest = tmp_path / 'replay' / '000000000002'
  size = sum(path.stat().st_size for path in newest.iterdir())
  usage = types.SimpleNamespace(free=size - missing)
  monkeypatch.setattr(shutil, 'disk_usage', lambda path: usage)
  seen = []
  monkeypatch.setattr(server._checkpoints, 'keep', lambda path: seen.append(names(tmp_path)))
  server.write_checkpoint()
  assert seen == [[*(f'{k:012d}' for k in earlier), 'next']]


def test_all_files_are_on_disk_before_a_checkpoint_has_its_name(start, tmp_path, monkeypatch):
  server = start(1, checkpoint=False)
  synced, fsync, rename = [], os.fsync, os.rename

  def record_sync(handle):
    synced.append(os.path.basename(os.readlink(f'/proc/self/fd/{handle}')))
    fsync(handle)

  def record_rename(source, target):
    expected = {'tables.tfrecord', 'items.tfrecord', 'chunks.tfrecord', 'DONE', 'digests.json.tmp'}
    assert expected | {os.path.basename(source)} == set(synced)
    rename(source, target)

  monkeypatch.setattr(os, 'fsync', record_sync)
  monkeypatch.setattr(os, 'rename', record_rename)
  server.write_checkpoint()
  assert synced[-1] == 'replay' and names(tmp_path) == ['000000000001', 'next']


def test_one_that_stalls_is_counted_once_the_next_is_due(start, monkeypatch):
  server, stop, resumed = start(), threading.Event(), threading.Event()
  monkeypatch.setattr(server, '_schedule', CheckpointSchedule(0.01))
  monkeypatch.setattr(server, 'write_checkpoint', lambda: resumed.wait(60))
  serving = threading.Thread(target=server._serve, args=(stop,), daemon=True)
  serving.start()
  wait_until(lambda: server.measure(1.0)['checkpoint_failures'])
  stop.set()
  resumed.set()
  serving.join(60)
  assert not serving.is_alive()


def test_a_heartbeat_announces_that_a_checkpoint_is_restored(start, monkeypatch):
  """Reverb holds the interpreter lock meanwhile, so that none can be sent."""
  announced, before = [], activity.latest().activity
  start(2)
  monkeypatch.setattr(activity, '_beat', lambda: announced.append(activity.latest().activity))
  start()
  assert announced == [activity.RESTORING, before]
