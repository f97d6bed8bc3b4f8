"""Recorded unrolls: chunks that are whole, whatever happens, and each transition once."""

import dataclasses
import errno
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from acme import specs

from agents.types import FIRST, LAST
from nodes.unrolls import transitions
from nodes.unrolls.packing import UNROLL_ID
from nodes.unrolls.recorder import UnrollRecorder
from rundir import recorded_unrolls
from rundir.errors import NonRetryableError
from rundir.recorded_unrolls import RecordingOptions
from tests.nodes import nested
from tests.nodes.unrolls import stream
from tests.waiting import wait_until


def played(count, length):
  """The transitions among the first `count` rows, by the definition in agents.types."""
  found = set()
  for t in range(count - 1):
    (now, action), (then, _) = stream.row(t, length), stream.row(t + 1, length)
    for e in range(stream.NUM_ENVS):
      if now.step_type[e] != LAST:
        assert then.step_type[e] != FIRST
        observations = now.observation[e, 0], then.observation[e, 0]
        found.add((*observations, action[e, 0], then.reward[e], then.discount[e]))
  return found


def recorded(*run_dirs):
  run_dirs = list(map(str, run_dirs))
  total = transitions.count(run_dirs)
  found = []
  for rows in transitions.read(run_dirs, total, total):
    observation, reward = rows['timestep/observation'], rows['timestep/reward']
    discount, action = rows['timestep/discount'], rows['action']
    for i in range(len(action)):
      found.append((*observation[i, :, 0], action[i, 0, 0], reward[i, 1], discount[i, 1]))
  assert len(found) == total
  return found


@pytest.mark.parametrize(
  'rows, period',
  [
    (2, 1),  # QT-Opt.
    (5, 4),  # V-trace and PPO: the last row is the next unroll's first.
    (9, 3),  # R2D2 and MuZero: most rows are in several unrolls.
    (8, 7),
  ],
)
def test_every_transition_is_read_once_from_unrolls_of_any_program(tmp_path, rows, period):
  # Sixty rows are whole unrolls; of the last one only the period is recorded.
  count, last = 60, (60 - rows) // period * period + period
  stream.record(tmp_path, rows, period, count)
  found = recorded(tmp_path)
  assert len(found) == len(set(found))
  assert set(found) == played(last + 1, 5)
  assert {discount for *_, discount in found} == {0, 1}


def test_rows_that_unrolls_share_take_no_room_and_core_states_are_left_out(tmp_path):
  stream.record(tmp_path, 9, 3, 60)
  layout = recorded_unrolls.read_format(str(tmp_path))
  assert (layout.version, layout.rows) == (1, 4)
  assert layout.columns['timestep/observation'] == ((4, 1), 'float32')
  assert layout.columns['timestep/step_type'] == ((4,), 'uint8')
  assert layout.columns['extras/logits'] == ((4, 2), 'float32')
  assert layout.columns['environment_id'] == ((), 'int32')
  assert layout.columns['unroll_id'] == ((), 'int64')
  assert not [name for name in layout.columns if name.startswith('core_state')]
  (chunk,) = recorded_unrolls.chunks(str(tmp_path))
  for name, column in recorded_unrolls.read_chunk(chunk, list(layout.columns)).items():
    shape, dtype = layout.columns[name]
    assert (column.shape[1:], column.dtype) == (shape, dtype)


def test_transitions_by_hand():
  """A termination, a truncation, and a new episode behind each."""
  step_type = np.array([[0, 1, 2, 0, 2], [2, 0, 1, 1, 2], [1, 0, 0, 2, 2]], np.uint8)
  assert transitions.valid(step_type).tolist() == [
    [True, True, False, True],
    [False, True, True, True],
    [False, False, True, False],  # An episode that broke off without a LAST row.
  ]
  columns = {
    'timestep/step_type': step_type[:2],
    'timestep/reward': np.array([[0, 1, 2, 0, 3], [9, 0, 4, 5, 6]], np.float32),
    'timestep/discount': np.array([[1, 1, 0, 1, 1], [0, 1, 1, 1, 1]], np.float32),
    'timestep/observation': np.arange(10, dtype=np.float32).reshape(2, 5, 1),
    'action': np.arange(10, 110, 10, dtype=np.float32).reshape(2, 5, 1),
  }
  pairs = transitions.pairs(columns)
  assert pairs['timestep/observation'][..., 0].tolist() == [
    [0, 1],
    [1, 2],
    [3, 4],
    [6, 7],
    [7, 8],
    [8, 9],
  ]
  assert pairs['action'][:, 0, 0].tolist() == [10, 20, 40, 70, 80, 90]
  assert pairs['timestep/reward'][:, 1].tolist() == [1, 2, 3, 4, 5, 6]
  assert pairs['timestep/discount'][:, 1].tolist() == [1, 0, 1, 1, 1, 1]
  assert pairs['timestep/step_type'][:, 1].tolist() == [1, 2, 2, 1, 1, 2]


def test_a_resumed_run_appends_and_reading_considers_what_there_was_at_first(tmp_path):
  stream.record(tmp_path, 5, 4, 60)
  before, run_dirs = recorded(tmp_path), [str(tmp_path)]
  stream.record(tmp_path, 5, 4, 40, first_id=1 << 40)
  total = transitions.count(run_dirs)
  assert total > len(before)
  assert recorded(tmp_path)[: len(before)] == before

  def observations(wanted):
    chunks = transitions.read(run_dirs, len(before), wanted)
    return np.concatenate([rows['timestep/observation'][:, 0, 0] for rows in chunks]).tolist()

  assert observations(len(before)) == [found[0] for found in before]
  few = observations(10)  # Evenly spaced.
  places = [observations(len(before)).index(value) for value in few]
  assert len(few) == 10 and {*np.diff(places)} <= {len(before) // 10, len(before) // 10 + 1}


def test_each_of_several_runs_that_still_record_adds_behind_what_there_was(tmp_path):
  first, second = tmp_path / 'first', tmp_path / 'second'
  stream.record(first, 5, 4, 60)
  stream.record(second, 5, 4, 40, first_id=1 << 40)
  before = recorded(first, second)
  stream.record(first, 5, 4, 40, length=7, first_id=1 << 41)
  stream.record(second, 5, 4, 40, length=7, first_id=1 << 42)
  after = recorded(first, second)
  assert len(after) > len(before) and after[: len(before)] == before


def test_a_full_disk_loses_one_chunk_and_leaves_nothing_of_it(tmp_path, monkeypatch):
  recording = stream.recorder(tmp_path, 2, 1, chunk_bytes=1500)
  some = list(stream.unrolls(2, 1, 200))
  save = np.savez

  def breaks(file, **columns):
    file.write(b'PK half a chunk')
    raise OSError(errno.ENOSPC, 'No space left on device')

  for number, unroll in enumerate(some):
    full = len(recorded_unrolls.chunks(str(tmp_path))) == 2 and not recording.dropped
    monkeypatch.setattr(np, 'savez', breaks if full else save)
    recording.record(stream.columns(unroll, number * stream.NUM_ENVS))
  recording.close()
  folder = recorded_unrolls.directory(str(tmp_path))
  assert not [name for name in os.listdir(folder) if name.endswith('.tmp')]
  found = stream.ids(tmp_path)
  assert 0 < recording.dropped < 30
  assert recording.recorded == len(found) == len(some) * stream.NUM_ENVS - recording.dropped
  lost = sorted(set(range(len(some) * stream.NUM_ENVS)) - set(found))
  assert lost == list(range(lost[0], lost[0] + recording.dropped))  # One chunk.


def test_a_layout_that_cannot_be_read_for_a_moment_loses_one_chunk(tmp_path):
  """As where the process has too many open files."""
  stream.record(tmp_path, 2, 1, 20)
  before = stream.ids(tmp_path)
  layout = tmp_path / 'unrolls' / 'format.json'
  layout.rename(tmp_path / 'aside')
  layout.mkdir()
  recording = stream.recorder(tmp_path, 2, 1, chunk_bytes=1500)
  first_id = 1 << 40
  for unroll in stream.unrolls(2, 1, 200):
    recording.record(stream.columns(unroll, first_id))
    first_id += stream.NUM_ENVS
    if recording.dropped and layout.is_dir():
      layout.rmdir()
      (tmp_path / 'aside').rename(layout)
  recording.close()
  assert 0 < recording.dropped < 30
  assert len(stream.ids(tmp_path)) == len(before) + recording.recorded


def test_it_ends_at_its_limit(tmp_path):
  recording = stream.record(tmp_path, 2, 1, 2000, chunk_bytes=20_000, max_bytes=100_000)
  assert 60_000 < recorded_unrolls.size(str(tmp_path)) <= 105_000
  assert stream.ids(tmp_path) == list(range(recording.recorded))


def test_unrolls_of_another_layout_are_not_added(tmp_path):
  stream.record(tmp_path, 2, 1, 20)
  with pytest.raises(NonRetryableError, match='has unrolls of another layout'):
    stream.record(tmp_path, 5, 4, 20)
  assert recorded_unrolls.read_format(str(tmp_path)).rows == 2


@pytest.mark.slow
def test_a_killed_process_leaves_whole_chunks_to_which_the_next_one_adds(tmp_path):
  process = subprocess.Popen([sys.executable, '-m', 'tests.nodes.unrolls.stream', str(tmp_path)])
  try:
    wait_until(lambda: len(recorded_unrolls.chunks(str(tmp_path))) > 20, process.poll)
  finally:
    process.send_signal(signal.SIGKILL)
    process.wait()
  found = stream.ids(tmp_path)
  assert sorted(found) == list(range(len(found)))
  assert len(recorded(tmp_path)) == len(set(recorded(tmp_path))) > 100
  stream.record(tmp_path, 2, 1, 20, first_id=1 << 40)
  assert stream.ids(tmp_path) == [*found, *range(1 << 40, (1 << 40) + 19 * stream.NUM_ENVS)]


@pytest.mark.parametrize(
  'content',
  [b'', b'\xff', b'[]', b'{"version": "x"}', b'{"version": 1, "rows": 2}', b'[' * 100_000],
)
def test_a_damaged_layout_is_named(tmp_path, content):
  stream.record(tmp_path, 2, 1, 20)
  (tmp_path / 'unrolls' / 'format.json').write_bytes(content)
  with pytest.raises(NonRetryableError, match=r'format\.json (is damaged|cannot be read): '):
    recorded_unrolls.read_format(str(tmp_path))


def test_a_file_that_cannot_be_read_is_named(tmp_path):
  with pytest.raises(NonRetryableError, match='nowhere does not exist'):
    recorded_unrolls.read_format(str(tmp_path / 'nowhere'))
  with pytest.raises(
    NonRetryableError, match='has no recorded unrolls; name a run that had --record_unrolls'
  ):
    recorded_unrolls.read_format(str(tmp_path))
  stream.record(tmp_path, 2, 1, 20)
  (chunk,) = recorded_unrolls.chunks(str(tmp_path))
  with open(chunk, 'rb+') as file:
    file.truncate(os.path.getsize(chunk) // 2)
  with pytest.raises(NonRetryableError, match=f'{os.path.basename(chunk)} is damaged'):
    transitions.count([str(tmp_path)])


def test_an_old_chunk_does_not_wait_for_more_unrolls(tmp_path):
  recording = stream.recorder(tmp_path, 2, 1, chunk_seconds=1e9)
  first, second, *_ = stream.unrolls(2, 1, 20)
  recording.record(stream.columns(first, 0))
  recording.look()
  assert stream.ids(tmp_path) == []
  recording._options = dataclasses.replace(recording._options, chunk_seconds=0.0)
  recording.look()
  assert stream.ids(tmp_path) == [0, 1, 2]
  recording.look()
  recording.record(stream.columns(second, 3))
  assert stream.ids(tmp_path) == list(range(6))
  recording.close()
  assert len(recorded_unrolls.chunks(str(tmp_path))) == 2


def test_the_leaves_of_a_nest_are_recorded_and_read_as_transitions(tmp_path):
  written, run_dirs = nested.nested_unrolls(0, 4), [str(tmp_path)]
  recording = UnrollRecorder(nested.COLUMNS, 3, RecordingOptions(str(tmp_path), 1 << 30))
  leaves = nested.COLUMNS.flatten(written)
  recording.record(leaves | {UNROLL_ID: np.arange(4)})
  recording.close()
  total = transitions.count(run_dirs)
  (found,) = transitions.read(run_dirs, total, total)
  expected = transitions.pairs({n: x for n, x in leaves.items() if n in found})
  assert sum(name.startswith('timestep/observation/') for name in found) == 4
  for name, column in found.items():
    np.testing.assert_array_equal(column, expected[name])
  environment = nested.NestedCounter([1])
  environment.action_spec = lambda: specs.DiscreteArray(9, np.int32)
  transitions.check(run_dirs, environment.spec())
  single = environment.spec()._replace(observations=specs.Array((4,), np.float32))
  said = 'recorded bool.4. as observation/action_mask, but this environment.s is nothing'
  with pytest.raises(NonRetryableError, match=said):
    transitions.check(run_dirs, single)


def test_what_killed_recorders_leave_counts_and_is_removed_later(tmp_path):
  layout = recorded_unrolls.Format(3, {'action': ((3,), 'int32')})
  recorded_unrolls.begin(str(tmp_path), layout)
  for name in ('old', 'new'):
    (tmp_path / 'unrolls' / f'{name}.npz.tmp').write_bytes(bytes(100))
  os.utime(tmp_path / 'unrolls' / 'old.npz.tmp', (0, 0))
  assert recorded_unrolls.size(str(tmp_path)) == 200
  assert not recorded_unrolls.chunks(str(tmp_path))
  recorded_unrolls.begin(str(tmp_path), layout)
  assert recorded_unrolls.size(str(tmp_path)) == 100, 'another node may be writing it'


def test_data_of_another_set_of_actions_are_refused(tmp_path):
  # As of Atari with full_action_space=false, whose action 2 is the full set's action 3.
  environment = nested.NestedCounter([1])
  for name, num_actions in (('nine', (9,)), ('before', ())):
    options = RecordingOptions(str(tmp_path / name), 1 << 30)
    recording = UnrollRecorder(nested.COLUMNS, 3, options, num_actions)
    recording.record(
      nested.COLUMNS.flatten(nested.nested_unrolls(0, 4)) | {UNROLL_ID: np.arange(4)}
    )
    recording.close()
  nine, before = (str(tmp_path / name) for name in ('nine', 'before'))
  for count in (9, 18):
    environment.action_spec = lambda count=count: specs.DiscreteArray(count, np.int32)
    transitions.check([before], environment.spec())  # Whose version did not record their number.
    if count == 9:
      transitions.check([nine], environment.spec())
  with pytest.raises(
    NonRetryableError, match='one of 9 actions, and this environment has 18; give'
  ):
    transitions.check([nine], environment.spec())


def test_a_recording_of_a_version_that_did_not_count_actions_goes_on(tmp_path):
  layout = recorded_unrolls.Format(3, {'action': ((3,), 'int32')}, num_actions=(6,))
  recorded_unrolls.begin(str(tmp_path), layout._replace(num_actions=()))
  recorded_unrolls.begin(str(tmp_path), layout)
