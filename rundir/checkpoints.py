"""Learner checkpoints: one file each, written atomically; the last few are kept.

A file is one line of JSON, the header, followed by the state as flax serialises it. The header has the
counters and a digest of the whole file except the digest itself. Reading the header and checking the
digest needs only the standard library.

Files of format 1, by earlier versions, have a digest of the state alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Mapping
from typing import Any

from absl import logging

from rundir import files
from rundir.errors import NonRetryableError

FORMAT = 2
COUNTERS = ('actor_steps', 'environment_frames', 'learner_steps')
_SUFFIX = '.checkpoint'
_NAME = re.compile(r'[0-9]+\.checkpoint')


class UnusableCheckpoint(NonRetryableError):
  """A checkpoint is damaged or from a different agent; one sentence that names the file."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
  """An intact checkpoint that has been read.

  Attributes:
    path: its file.
    counts: actor_steps, environment_frames and learner_steps of the state.
    state: the serialised learner state.
  """

  path: str
  counts: dict[str, int]
  state: bytes


def directory(run_dir: str) -> str:
  """Returns the directory of a run's learner checkpoints."""
  return os.path.join(run_dir, 'checkpoints')


def write(path: str, counts: Mapping[str, float], state: bytes, keep: int) -> str:
  """Writes a checkpoint and removes all but the last few; returns its file.

  The file gets its name once it is complete and on disk, so killing the process during the write
  leaves the earlier checkpoints unchanged. If the disk is full, earlier ones make room; the newest of
  them stays until this one is complete.

  Args:
    path: directory of the checkpoints.
    counts: counters, 0 where missing; `learner_steps` names the file.
    state: the serialised learner state.
    keep: number of checkpoints to keep, this one included.

  Raises:
    OSError: if it cannot be written; at least one earlier checkpoint stays.
  """
  os.makedirs(path, exist_ok=True)
  counts = dict.fromkeys(COUNTERS, 0) | {name: int(value) for name, value in counts.items()}
  header = {'launchpod_checkpoint': FORMAT, 'counts': counts, 'sha256': ''}
  header['sha256'] = _digest(_line(header), state)
  file = os.path.join(path, f'{counts["learner_steps"]:012d}{_SUFFIX}')
  others = [other for other in _files(path) if other != file]
  # Training resumes from the newest intact checkpoint, so later steps are damaged: remove them first.
  others.sort(key=lambda other: _steps_of(other) < _steps_of(file))
  while True:
    try:
      # A fixed partial name, so that partial files of killed processes do not accumulate.
      with files.replacing(file, partial=os.path.join(path, 'next.tmp')) as f:
        f.write(_line(header))
        f.write(state)
      break
    except OSError as error:
      if not files.is_full(error) or len(others) < 2:
        raise
      logging.warning('the disk is full: removing %s to make room for %s', others[0], file)
      os.remove(others.pop(0))
  for old in others[: max(0, len(others) + 1 - keep)]:
    os.remove(old)
  return file


def steps(path: str) -> dict[int, str]:
  """Returns the checkpoints of a directory by learner_steps, oldest first, damaged ones included.

  Files with other names are ignored.
  """
  return {_steps_of(file): file for file in _files(path)}


def newest(path: str) -> Checkpoint | None:
  """Returns the newest intact checkpoint of a directory; None if it has no checkpoints.

  Logs a warning about each newer checkpoint that is damaged.

  Raises:
    UnusableCheckpoint: if checkpoints exist but all are damaged; one sentence.
  """
  files = _files(path)
  problems = []
  for file in reversed(files):
    try:
      return read(file)
    except UnusableCheckpoint as error:
      logging.warning('%s', error)
      problems.append(str(error))
  if problems:
    raise UnusableCheckpoint(
      f'none of the {len(files)} checkpoints in {path} is usable: {problems[0]}'
    )
  return None


def read(file: str) -> Checkpoint:
  """Reads one checkpoint.

  Raises:
    UnusableCheckpoint: if the file is damaged or not a checkpoint; one sentence that names it.
  """
  try:
    with open(file, 'rb') as f:
      line, state = f.readline(), f.read()
  except OSError as error:
    raise UnusableCheckpoint(f'{file} cannot be read: {error.strerror}.') from error
  try:
    header = json.loads(line)
    version, digest = header['launchpod_checkpoint'], header['sha256']
    counts, digest = header['counts'], digest.encode()
  except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
    raise UnusableCheckpoint(f'{file} is not a Launchpod checkpoint.') from None
  if version not in (1, FORMAT):
    raise UnusableCheckpoint(
      f'{file} has format {version}; this version of Launchpod reads 1 and {FORMAT}.'
    )
  covered = (line.replace(digest, b'', 1), state) if version == FORMAT else (state,)
  if _digest(*covered).encode() != digest:
    raise UnusableCheckpoint(f'{file} is damaged: its content is not what was written.')
  if not _are_counts(counts) or counts['learner_steps'] != _steps_of(file):
    raise UnusableCheckpoint(f'{file} is damaged: {counts} are not the counters of that step.')
  return Checkpoint(file, counts, state)


def _line(header: Mapping[str, Any]) -> bytes:
  return json.dumps(header).encode() + b'\n'


def _digest(*parts: bytes) -> str:
  digest = hashlib.sha256()
  for part in parts:
    digest.update(part)
  return digest.hexdigest()


def _are_counts(counts: Any) -> bool:
  """Returns whether a header has all counters, and nothing that is not a counter's value."""
  return (
    isinstance(counts, dict)
    and counts.keys() >= set(COUNTERS)
    and all(type(value) is int and 0 <= value < 2**63 for value in counts.values())
  )


def _files(path: str) -> list[str]:
  """Returns the checkpoints of a directory, oldest first."""
  if not os.path.isdir(path):
    return []
  named = filter(_NAME.fullmatch, os.listdir(path))
  return sorted((os.path.join(path, name) for name in named), key=_steps_of)


def _steps_of(file: str) -> int:
  return int(os.path.basename(file).partition('.')[0])
