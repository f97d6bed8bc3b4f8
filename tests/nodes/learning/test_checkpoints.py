"""Learner checkpoints: whole or not there, the last few kept, foreign ones refused."""

import contextlib
import errno
import hashlib
import json
import os
import random
import subprocess
import sys
import threading
import types

import jax
import numpy as np
import pytest

from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from environments.catch import Catch
from nodes.learning import serialisation
from nodes.learning.checkpointer import Checkpointer
from nodes.runtime import activity, full_disk, lifecycle
from rundir import checkpoints, saved_params
from tests.waiting import wait_until

COUNTS = {'actor_steps': 40, 'environment_frames': 160, 'learner_steps': 2}
SPEC = Catch(1, 0).spec()


def _state(**options):
  agent = VTrace(VTraceConfig(**options), SPEC.observations, SPEC.actions)
  return jax.device_get(jax.jit(agent.init)(jax.random.key(1)))


def _write(path, learner_steps, content=b'state', keep=2):
  return checkpoints.write(str(path), COUNTS | {'learner_steps': learner_steps}, content, keep)


def test_a_state_comes_back_as_it_was(tmp_path):
  state = _state(core='lstm', core_size=8, normalize_observations=True, normalize_rewards=True)
  checkpoints.write(str(tmp_path), COUNTS, serialisation.serialise(state), keep=1)
  checkpoint = checkpoints.newest(str(tmp_path))
  assert checkpoint.counts == COUNTS
  blank = jax.tree.map(np.zeros_like, state)
  jax.tree.map(np.testing.assert_array_equal, serialisation.restore(checkpoint, blank), state)


def test_the_last_few_are_kept_and_the_newest_is_taken(tmp_path):
  for step in (9, 10, 11, 100):
    _write(tmp_path, step)
  assert [checkpoints.read(str(p)).counts['learner_steps'] for p in sorted(tmp_path.iterdir())] == [
    11,
    100,
  ]
  assert checkpoints.newest(str(tmp_path)).counts['learner_steps'] == 100
  assert checkpoints.newest(str(tmp_path / 'nowhere')) is None


def test_a_damaged_checkpoint_is_skipped_for_the_one_before(tmp_path):
  _write(tmp_path, 1)
  newer = _write(tmp_path, 2)
  with open(newer, 'r+b') as f:
    f.seek(-1, os.SEEK_END)
    f.write(b'x')
  assert checkpoints.newest(str(tmp_path)).counts['learner_steps'] == 1
  os.remove(checkpoints.newest(str(tmp_path)).path)
  with pytest.raises(lifecycle.NonRetryableError, match=r'none of the 1 checkpoints .* is damaged'):
    checkpoints.newest(str(tmp_path))


def _mutated(content, rng):
  """Returns a file after one of the accidents that happen to files; never the same content."""
  place, other = rng.randrange(len(content)), rng.randrange(len(content))
  # Half of the accidents are in the header, which is small.
  place = rng.randrange(content.index(b'\n') + 1) if rng.random() < 0.5 else place
  span = rng.randrange(1, 20)
  damaged = rng.choice(
    [
      content[:place] + bytes([content[place] ^ (1 << rng.randrange(8))]) + content[place + 1 :],
      content[:place] + rng.randbytes(span) + content[place + span :],
      content[:place] + bytes(span) + content[place + span :],
      content[:place] + content[place + span :],
      content[:place] + rng.randbytes(span) + content[place:],
      content[:place] + content[other : other + span] + content[place:],
      content[:place],
    ]
  )
  return content + b'\0' if damaged == content else damaged


def test_no_damage_anywhere_in_a_checkpoint_is_taken(tmp_path):
  rng = random.Random(0)
  file = _write(tmp_path, 7, content=rng.randbytes(500))
  with open(file, 'rb') as f:
    content = f.read()
  taken = []
  for _ in range(3000):
    damaged = _mutated(content, rng)
    with open(file, 'r+b') as f:
      f.write(damaged)
      f.truncate()
    with contextlib.suppress(checkpoints.UnusableCheckpoint):
      checkpoints.read(file)
      taken.append(damaged)
  assert taken == []


@pytest.mark.parametrize(
  'old, new', [(b'"learner_steps"', b'"lear,er_steps"'), (b': 40,', b': 99999960200,')]
)
def test_a_checkpoint_with_damaged_counters_is_skipped_for_the_one_before(tmp_path, old, new):
  _write(tmp_path, 1)
  newer = _write(tmp_path, 2)
  with open(newer, 'rb') as f:
    content = f.read()
  assert content.count(old) == 1
  with open(newer, 'wb') as f:
    f.write(content.replace(old, new))
  assert checkpoints.newest(str(tmp_path)).counts == COUNTS | {'learner_steps': 1}


def _write_format_1(path, counts, state=b'state'):
  """Writes the checkpoint of learner step 2 as earlier versions did."""
  header = {
    'launchpod_checkpoint': 1,
    'counts': counts,
    'sha256': hashlib.sha256(state).hexdigest(),
  }
  (path / '000000000002.checkpoint').write_bytes(json.dumps(header).encode() + b'\n' + state)


def test_a_checkpoint_of_an_earlier_version_is_read(tmp_path):
  _write_format_1(tmp_path, COUNTS)
  found = checkpoints.newest(str(tmp_path))
  assert (found.counts, found.state) == (COUNTS, b'state')


@pytest.mark.parametrize(
  'counts',
  [
    {name: COUNTS[name] for name in ('actor_steps', 'learner_steps')},
    COUNTS | {'actor_steps': -1},
    COUNTS | {'actor_steps': 2**63},
    COUNTS | {'actor_steps': True},
    COUNTS | {'actor_steps': 40.5},
    COUNTS | {'actor_steps': '40'},
    COUNTS | {'actor_steps': None},
    COUNTS | {'learner_steps': 3},
    list(COUNTS.items()),
    None,
  ],
)
def test_counters_that_no_run_has_are_damage_in_a_checkpoint_of_any_version(tmp_path, counts):
  _write(tmp_path, 1)
  _write_format_1(tmp_path, counts)
  assert checkpoints.newest(str(tmp_path)).counts['learner_steps'] == 1


@pytest.mark.parametrize(
  'content, words',
  [
    (b'', 'is not a Launchpod'),
    (b'\x00\xff\n', 'is not a'),
    (b'{"launchpod_checkpoint": 1}\n', 'is not a'),
    (b'[' * 100_000 + b'\n', 'is not a'),
    (b'{"launchpod_checkpoint": 3, "counts": {}, "sha256": ""}\n', 'has format 3; this'),
  ],
)
def test_a_file_that_is_no_checkpoint_is_named(tmp_path, content, words):
  file = tmp_path / '1.checkpoint'
  file.write_bytes(content)
  with pytest.raises(lifecycle.NonRetryableError, match=f'1.checkpoint {words}'):
    checkpoints.read(str(file))


@pytest.mark.slow
@pytest.mark.parametrize(
  'other',
  [
    {},
    {'core': 'lstm', 'core_size': 8},
    {'core': 'lstm', 'core_size': 4, 'normalize_observations': True},
  ],
)
def test_a_checkpoint_of_another_network_is_rejected(tmp_path, other):
  state = _state(core='lstm', core_size=4)
  checkpoints.write(str(tmp_path), COUNTS, serialisation.serialise(state), keep=1)
  checkpoint = checkpoints.newest(str(tmp_path))
  with pytest.raises(lifecycle.NonRetryableError, match='made by another config') as raised:
    serialisation.restore(checkpoint, _state(**other))
  assert checkpoint.path in str(raised.value)


def test_parameters_in_which_an_array_has_become_something_else_are_refused():
  saved = saved_params.SavedParams('final.msgpack', {}, serialisation.serialise({'w': 1}))
  with pytest.raises(checkpoints.UnusableCheckpoint, match='has int for w, but this agent expects'):
    serialisation.params(saved, {'w': np.zeros(2, np.float32)})


_WRITER = """
import sys
from rundir import checkpoints
step = 0
while True:
  step += 1
  counts = {'learner_steps': step}
  checkpoints.write(sys.argv[1], counts, bytes([step % 256]) * 20_000_000, keep=2)
  print(step, flush=True)
"""


def test_a_writer_killed_at_any_moment_leaves_a_whole_checkpoint(tmp_path):
  half_written = 0
  for kill in range(6):
    path = tmp_path / str(kill)
    writer = subprocess.Popen([sys.executable, '-c', _WRITER, path], stdout=subprocess.PIPE)
    try:
      for _ in range(2):
        last = int(writer.stdout.readline())
      if kill % 2:  # Half of the kills are within a write for sure.
        wait_until(lambda path=path: list(path.glob('*.tmp')))
    finally:
      writer.kill()
    lines = writer.stdout.read().split()
    last = int(lines[-1]) if lines else last
    writer.wait()
    half_written += bool(list(path.glob('*.tmp')))
    checkpoint = checkpoints.newest(str(path))
    step = checkpoint.counts['learner_steps']
    assert step >= last
    assert checkpoint.state == bytes([step % 256]) * 20_000_000
  assert half_written


def test_a_checkpoint_that_cannot_be_written_is_counted_and_training_continues(tmp_path):
  in_the_way = tmp_path / 'checkpoints'
  in_the_way.write_text('a file')
  checkpointer = Checkpointer(str(in_the_way), 1.0, 2, lambda: (COUNTS, {'w': 1}))
  checkpointer.write_now()
  assert checkpointer.failures == 1


def test_checkpoints_are_written_when_due_and_not_at_all_when_switched_off(tmp_path):
  saved = []

  def save():
    saved.append(True)
    return COUNTS, {'w': np.ones(2)}

  often = Checkpointer(str(tmp_path / 'often'), 1e-9, 2, save)
  assert often.due()
  often.begin()
  often.write_now()
  assert len(saved) == 2 and checkpoints.newest(str(tmp_path / 'often')).counts == COUNTS
  for period in (0.0, 1e9):
    checkpointer = Checkpointer(str(tmp_path / str(period)), period, 2, save)
    assert not checkpointer.due()


def test_files_with_other_names_are_skipped(tmp_path):
  for name in ('foo.checkpoint', '-3.checkpoint', '7.checkpoint.bak'):
    (tmp_path / name).write_bytes(b'no checkpoint of ours')
  for step in (1, 2):
    _write(tmp_path, step, keep=1)
  assert list(checkpoints.steps(str(tmp_path))) == [2]
  assert checkpoints.newest(str(tmp_path)).counts['learner_steps'] == 2
  assert (tmp_path / 'foo.checkpoint').exists()


def test_a_checkpoint_that_cannot_be_read_is_skipped(tmp_path):
  _write(tmp_path, 1)
  (tmp_path / '000000000002.checkpoint').mkdir()
  assert checkpoints.newest(str(tmp_path)).counts['learner_steps'] == 1


def _no_memory(*args):
  raise MemoryError('cannot allocate')


@pytest.mark.parametrize('where', ['save', 'serialise'])
def test_a_checkpoint_that_fails_for_any_reason_is_counted_and_the_earlier_ones_stay(
  tmp_path, monkeypatch, where
):
  states = types.SimpleNamespace(save=lambda: (COUNTS, {'w': 1}))
  checkpointer = Checkpointer(str(tmp_path), 1.0, 1, lambda: states.save())
  checkpointer.write_now()
  monkeypatch.setattr({'save': states, 'serialise': serialisation}[where], where, _no_memory)
  checkpointer.write_now()
  assert checkpointer.failures == 1
  assert checkpoints.newest(str(tmp_path)).counts == COUNTS


def test_a_checkpoint_whose_thread_is_refused_is_counted(tmp_path, monkeypatch):
  def refuse(work):
    raise RuntimeError("can't start new thread")

  checkpointer = Checkpointer(str(tmp_path), 1.0, 2, lambda: (COUNTS, {'w': 1}))
  monkeypatch.setattr(lifecycle, 'run_before_exit', refuse)
  checkpointer.begin()
  assert checkpointer.failures == 1


def test_a_stop_while_the_state_is_copied_is_no_failed_checkpoint(tmp_path):
  def save():
    raise lifecycle.Stopped

  checkpointer = Checkpointer(str(tmp_path), 1.0, 1, save)
  with pytest.raises(lifecycle.Stopped):
    checkpointer.write_now()
  assert checkpointer.failures == 0


def test_a_stopping_process_does_not_exit_while_the_last_state_is_copied(tmp_path):
  held = []

  def save():
    held.append(any(thread.name == lifecycle.FINISH for thread in threading.enumerate()))
    return COUNTS, {'w': 1}

  Checkpointer(str(tmp_path), 1.0, 1, save).write_now()
  assert held == [True]


def test_a_node_that_waits_for_its_checkpoint_says_so(tmp_path, monkeypatch):
  """As where gigabytes go to a disk that is stalled: that is not a hang, however long it takes."""
  seen, replace = [], os.replace

  def stalled(*args):
    seen.append(activity.latest().activity)
    replace(*args)

  monkeypatch.setattr(os, 'replace', stalled)
  activity.mark(activity.UPDATING)
  Checkpointer(str(tmp_path), 1.0, 1, lambda: (COUNTS, {'w': 1})).write_now()
  assert seen == [activity.WRITING_CHECKPOINT]
  assert activity.latest().activity == activity.UPDATING
  assert checkpoints.newest(str(tmp_path)).counts == COUNTS


def test_a_damaged_checkpoint_takes_no_place_of_those_that_are_kept(tmp_path):
  for steps in (1, 2, 3):
    damaged = _write(tmp_path, steps, keep=3)
  with open(damaged, 'r+b') as f:
    f.truncate(10)
  _write(tmp_path, 2, keep=2)  # Training continues from the newest intact one, and writes again.
  assert sorted(checkpoints.steps(str(tmp_path))) == [1, 2]


def _fill_the_disk(monkeypatch, path, room):
  """Lets no file be written while as many checkpoints as there is room for exist."""
  replace = os.replace

  def full(partial, file):
    if len(checkpoints.steps(str(path))) >= room:
      raise OSError(errno.ENOSPC, 'No space left on device')
    replace(partial, file)

  monkeypatch.setattr(os, 'replace', full)


def test_earlier_checkpoints_make_room_on_a_full_disk_and_the_damaged_ones_first(
  tmp_path, monkeypatch
):
  for steps in (1, 2, 3, 9):
    _write(tmp_path, steps, keep=4)
  _fill_the_disk(monkeypatch, tmp_path, room=3)
  _write(tmp_path, 4, keep=4)  # Training has continued from 3, so 9 was damaged.
  assert sorted(checkpoints.steps(str(tmp_path))) == [2, 3, 4]


def test_the_newest_checkpoint_makes_no_room(tmp_path, monkeypatch):
  for steps in (1, 2, 3):
    _write(tmp_path, steps, keep=3)
  _fill_the_disk(monkeypatch, tmp_path, room=1)
  with pytest.raises(OSError, match='No space left'):
    _write(tmp_path, 4, keep=3)
  assert sorted(checkpoints.steps(str(tmp_path))) == [3]
  assert checkpoints.newest(str(tmp_path)).counts['learner_steps'] == 3


@pytest.mark.parametrize('stops', [False, True])
def test_the_last_checkpoint_of_finished_training_waits_for_room(tmp_path, monkeypatch, stops):
  tries, write = [], checkpoints.write

  def sometimes(*args):
    tries.append(True)
    if len(tries) < 4:
      raise OSError(errno.ENOSPC, 'No space left on device')
    return write(*args)

  monkeypatch.setattr(checkpoints, 'write', sometimes)
  monkeypatch.setattr(full_disk, '_PAUSE_SECONDS', 0.0)
  checkpointer = Checkpointer(str(tmp_path), 1e9, 1, lambda: (COUNTS, {'w': 1}))
  checkpointer.write_now(lambda: stops and len(tries) == 2)
  assert (len(tries), checkpointer.failures) == ((2, 1) if stops else (4, 0))
  assert bool(list(tmp_path.glob('*.checkpoint'))) is not stops


def test_a_checkpoint_that_stalls_counts_as_a_failure_when_the_next_is_due(tmp_path, monkeypatch):
  resumed, replace = threading.Event(), os.replace

  def stalled(*args):
    resumed.wait(60)
    replace(*args)

  monkeypatch.setattr(os, 'replace', stalled)
  checkpointer = Checkpointer(str(tmp_path), 1e-9, 1, lambda: (COUNTS, {'w': 1}))
  for failures in range(3):
    if checkpointer.due():
      checkpointer.begin()
    assert checkpointer.failures == failures
  resumed.set()
  checkpointer.write_now()
  assert checkpoints.newest(str(tmp_path)).counts == COUNTS
