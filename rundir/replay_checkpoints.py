"""Replay checkpoints on disk: keeps the last two and detects damage before Reverb reads them.

Each checkpoint is a directory with Reverb's files and a digest of each. A counter names it, so setting
the clock back does not affect the order. Directories named by a time come from earlier versions and
have no digests.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil

from rundir import files, reading

_KEPT = 2
_NUMBER = re.compile('[0-9]{12}')
_TIME = re.compile('[0-9]{4}-[0-9]{2}-[0-9]{2}T.*')
_DONE = 'DONE'  # Reverb writes it last.
_DIGESTS = 'digests.json'
_SCRATCH = 'next'
_BLOCK = 1 << 20


class Damaged(Exception):
  """A checkpoint is damaged; one sentence that names it and the damage."""


class ReplayCheckpoints:
  """The checkpoints of one replay server.

  Attributes:
    scratch: directory into which Reverb writes; emptied at the start.
  """

  def __init__(self, path: str):
    """Creates the directory of the checkpoints, `path`, if it does not exist."""
    self._path = path
    self._damaged: set[str] = set()
    self.scratch = os.path.join(path, _SCRATCH)
    os.makedirs(path, exist_ok=True)
    self.empty_scratch()

  def empty_scratch(self) -> None:
    """Removes incomplete checkpoints."""
    shutil.rmtree(self.scratch, ignore_errors=True)
    os.makedirs(self.scratch, exist_ok=True)

  def kept(self) -> list[str]:
    """Returns the checkpoints, newest first, damaged ones included."""
    names = os.listdir(self._path)
    ordered = sorted(filter(_TIME.fullmatch, names)) + sorted(filter(_NUMBER.fullmatch, names))
    return [os.path.join(self._path, name) for name in reversed(ordered)]

  def check(self, checkpoint: str) -> None:
    """Compares a checkpoint with its digests, if it has any.

    Raises:
      Damaged: if it differs; it no longer counts as one of those to keep.
    """
    try:
      wrong = _difference(checkpoint)
    except (OSError, ValueError) as error:
      wrong = f'it cannot be read ({error})'
    if wrong:
      raise self.damaged(checkpoint, wrong)

  def damaged(self, checkpoint: str, why: str) -> Damaged:
    """Marks a checkpoint as damaged; returns the exception to raise."""
    self._damaged.add(checkpoint)
    return Damaged(f'{checkpoint} is damaged: {why}')

  def make_room(self) -> None:
    """Removes the earlier of two checkpoints if the disk has no room for another like the newest."""
    whole = self._whole()
    if whole and shutil.disk_usage(self._path).free < _size(whole[0]):
      self._remove_old(kept=1)

  def keep(self, written: str) -> str:
    """Moves a checkpoint out of `scratch`, numbers it, and removes all but the last two.

    Args:
      written: directory of the complete checkpoint.

    Returns:
      Its new directory, which is on disk.

    Raises:
      OSError: if it cannot be written to disk; the earlier checkpoints stay.
    """
    names = os.listdir(written)
    digests = {name: _digest(os.path.join(written, name)) for name in names}
    for name in names:
      files.sync(os.path.join(written, name))
    files.write_json(os.path.join(written, _DIGESTS), digests)  # Also syncs the directory.
    numbers = [int(os.path.basename(c)) for c in self.kept() if _is_numbered(c)]
    checkpoint = os.path.join(self._path, f'{max(numbers, default=0) + 1:012d}')
    os.rename(written, checkpoint)
    files.sync_directory(self._path)
    self._remove_old(_KEPT)
    return checkpoint

  def _whole(self) -> list[str]:
    return [c for c in self.kept() if c not in self._damaged]

  def _remove_old(self, kept: int) -> None:
    for checkpoint in set(self.kept()) - set(self._whole()[:kept]):
      # Rename first, so that a numbered directory is never partly deleted.
      dying = os.path.join(self.scratch, os.path.basename(checkpoint))
      os.rename(checkpoint, dying)
      shutil.rmtree(dying, ignore_errors=True)


def _difference(checkpoint: str) -> str:
  """Returns how a checkpoint differs from what was written, in words; '' if it does not."""
  names = set(os.listdir(checkpoint))
  if _DONE not in names:
    return 'it was not completed'
  if not _is_numbered(checkpoint):
    return ''
  if _DIGESTS not in names:
    return f'it has no {_DIGESTS}'
  digests = reading.json_object(os.path.join(checkpoint, _DIGESTS))
  for name in sorted(digests.keys() | names - {_DIGESTS}):
    if name not in names:
      return f'{name} is missing'
    if name not in digests:
      return f'{name} is not in {_DIGESTS}'
    if _digest(os.path.join(checkpoint, name)) != digests[name]:
      return f'{name} is not what was written'
  return ''


def _size(checkpoint: str) -> int:
  return sum(entry.stat().st_size for entry in os.scandir(checkpoint))


def _is_numbered(checkpoint: str) -> bool:
  return _NUMBER.fullmatch(os.path.basename(checkpoint)) is not None


def _digest(path: str) -> str:
  digest = hashlib.sha256()
  with open(path, 'rb') as f:
    while block := f.read(_BLOCK):
      digest.update(block)
  return digest.hexdigest()
