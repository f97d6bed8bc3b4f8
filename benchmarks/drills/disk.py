"""Drill: the disk of the run directory is full for a while."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import time
from collections.abc import Iterator

from benchmarks.drills.checks import Checks, Refused
from benchmarks.drills.subject import Subject
from rundir import curves

SIZE = '64m'
NODE_TIMEOUT_SECONDS = 15
FULL_SECONDS = 40.0
AFTER_SECONDS = 30.0
_CLONE_NEWNS = 0x00020000


@contextlib.contextmanager
def small_disk(directory: str) -> Iterator[None]:
  """Mounts a small disk at an empty directory, visible to this process and its later children.

  Raises:
    Refused: this system does not allow the mount.
  """
  if os.geteuid():
    raise Refused('the drill with a full disk mounts one, for which it needs root.')
  if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS):
    why = os.strerror(ctypes.get_errno())
    raise Refused(f'the drill with a full disk needs mounts of its own, which are refused ({why}).')
  for command in (
    ['mount', '--make-rprivate', '/'],
    ['mount', '-t', 'tmpfs', '-o', f'size={SIZE}', 'drill', directory],
  ):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
      raise Refused(f'the drill with a full disk cannot mount one: {done.stderr.strip()}')
  try:
    yield
  finally:
    subprocess.run(['umount', '--lazy', directory], check=False)


def fill(path: str) -> None:
  """Appends to a file until the disk is full."""
  with open(path, 'ab', buffering=0) as f, contextlib.suppress(OSError):
    for size in (1 << 20, 1 << 12, 1):
      with contextlib.suppress(OSError):
        while f.write(bytes(size)) == size:
          pass


def fills_and_empties(directory: str, checks: Checks) -> None:
  """Fills the disk for longer than --node_timeout, then frees it.

  Args:
    directory: an existing directory.
    checks: collects the results.

  Raises:
    Refused: this system does not allow it.
  """
  disk = os.path.join(directory, 'disk')
  os.mkdir(disk)
  flag = f'--node_timeout={NODE_TIMEOUT_SECONDS}'
  with small_disk(disk), Subject(disk, checks, flag, output=directory) as subject:
    pids = subject.begin()
    filler = os.path.join(disk, 'filler')
    end = time.monotonic() + FULL_SECONDS
    while time.monotonic() < end:
      fill(filler)
      time.sleep(0.2)
    before = _last_row(subject)
    subject.unharmed(pids, f'its disk full for {FULL_SECONDS:g} s')
    os.remove(filler)
    freed = time.monotonic()
    subject.wait(lambda: _last_row(subject)[0] > before[0], 'measurements resume')
    waited = time.monotonic() - freed
    checks.add(
      waited < AFTER_SECONDS, f'measurements resume when there is room (after {waited:.0f} s)'
    )
    # The last row before the disk was full, or soon after, so that the steps learned meanwhile show.
    seconds, steps = (now - then for now, then in zip(_last_row(subject), before, strict=True))
    checks.add(
      seconds < FULL_SECONDS / 2 or steps > 0,
      f'training went on meanwhile ({steps:.0f} learner steps from row to row, {seconds:.0f} s apart)',
    )
    for node in sorted(pids):
      subject.works(node)
    counts = subject.program.checkpoint_counts()['learner_steps']
    subject.wait(
      lambda: subject.program.checkpoint_counts()['learner_steps'] > counts, 'a further checkpoint'
    )
    checks.add(True, 'every node works, and checkpoints are written')
    subject.unharmed(pids, 'its disk no longer full')
    subject.stop()


def _last_row(subject: Subject) -> tuple[float, ...]:
  """Returns the time and the learner steps of the learner's last row."""
  rows = curves.read(subject.run_dir, 'inference_learner/0', 'seconds', 'learner_steps')
  return rows[-1] if rows else (0.0, 0.0)
