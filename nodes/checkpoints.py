"""Learner checkpoints: one file each, there whole or not at all, the last few kept.

A file is one line of JSON, with the counters and a digest, and then the state as flax serialises it.
Reading the line and checking the digest needs nothing but the standard library.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from absl import logging

from nodes import activity, lifecycle
from rundir import files

FORMAT = 1
_SUFFIX = '.checkpoint'
_NAME = re.compile(r'[0-9]+\.checkpoint')
# Between two words about a checkpoint that is waited for, in seconds.
_POLL_SECONDS = 0.5
_PATIENCE_SECONDS = 30.0


@dataclasses.dataclass(frozen=True)
class Checkpoint:
  """A checkpoint that has been read and found whole.

  Attributes:
    path: its file.
    counts: actor_steps, environment_frames and learner_steps at its moment.
    state: the serialised learner state.
  """

  path: str
  counts: dict[str, int]
  state: bytes


def directory(run_dir: str) -> str:
  """Returns where a run's learner checkpoints are."""
  return os.path.join(run_dir, 'checkpoints')


def write(path: str, counts: Mapping[str, float], state: bytes, keep: int) -> str:
  """Writes a checkpoint and removes all but the last few; returns its file.

  The file gets its name once it is complete and on disk, so a process that is killed meanwhile
  leaves the earlier checkpoints as they were.

  Args:
    path: directory of the checkpoints.
    counts: counters; `learner_steps` names the file.
    state: the serialised learner state.
    keep: how many checkpoints to keep, this one included.
  """
  os.makedirs(path, exist_ok=True)
  header = {
    'launchpod_checkpoint': FORMAT,
    'counts': {name: int(value) for name, value in counts.items()},
    'sha256': hashlib.sha256(state).hexdigest(),
  }
  file = os.path.join(path, f'{int(counts["learner_steps"]):012d}{_SUFFIX}')
  # One partial name, so that those of killed processes do not pile up.
  with files.replacing(file, partial=os.path.join(path, 'next.tmp')) as f:
    f.write(json.dumps(header).encode() + b'\n')
    f.write(state)
  others = [other for other in _files(path) if other != file]
  # Training goes on from the newest whole one, so those of later steps are damaged: they go first.
  others.sort(key=lambda other: _steps_of(other) < _steps_of(file))
  for old in others[: max(0, len(others) + 1 - keep)]:
    os.remove(old)
  return file


def steps(path: str) -> dict[int, str]:
  """Returns the checkpoints of a directory by their learner_steps, oldest first; whole or not.

  Files that are called otherwise are passed over.
  """
  return {_steps_of(file): file for file in _files(path)}


def newest(path: str) -> Checkpoint | None:
  """Returns the newest whole checkpoint of a directory; None if it holds no checkpoint at all.

  Logs a warning about each newer one that is not whole.

  Raises:
    lifecycle.Hopeless: if there are checkpoints, but none is whole; one sentence.
  """
  files = _files(path)
  problems = []
  for file in reversed(files):
    try:
      return read(file)
    except lifecycle.Hopeless as error:
      logging.warning('%s', error)
      problems.append(str(error))
  if problems:
    raise lifecycle.Hopeless(
      f'none of the {len(files)} checkpoints in {path} is usable: {problems[0]}'
    )
  return None


def read(file: str) -> Checkpoint:
  """Reads one checkpoint.

  Raises:
    lifecycle.Hopeless: if it is not one, or not whole; one sentence that names the file.
  """
  try:
    with open(file, 'rb') as f:
      line, state = f.readline(), f.read()
  except OSError as error:
    raise lifecycle.Hopeless(f'{file} cannot be read: {error.strerror}.') from error
  try:
    header = json.loads(line)
    version, digest = header['launchpod_checkpoint'], header['sha256']
    counts = {str(name): int(value) for name, value in header['counts'].items()}
  except (ValueError, KeyError, TypeError, AttributeError):
    raise lifecycle.Hopeless(f'{file} is no Launchpod checkpoint.') from None
  if version != FORMAT:
    raise lifecycle.Hopeless(
      f'{file} has format {version}; this version of Launchpod reads {FORMAT}.'
    )
  if hashlib.sha256(state).hexdigest() != digest:
    raise lifecycle.Hopeless(f'{file} is damaged: its content is not what was written.')
  return Checkpoint(file, counts, state)


def serialise(state: Any) -> bytes:
  """Returns a nest of NumPy arrays as bytes."""
  from flax import serialization

  return serialization.to_bytes(state)


def restore(checkpoint: Checkpoint, template: Any) -> Any:
  """Returns the state in a checkpoint.

  Args:
    checkpoint: what `newest` or `read` returned.
    template: a state of the same structure.

  Raises:
    lifecycle.Hopeless: if the checkpoint is of another agent or network; one sentence.
  """
  from flax import serialization

  try:
    state = serialization.msgpack_restore(checkpoint.state)
  except ValueError as error:
    raise lifecycle.Hopeless(f'{checkpoint.path} holds no learner state ({error}).') from error
  return fit(checkpoint.path, template, state)


def fit(path: str, template: Any, state: Any) -> Any:
  """Returns what flax has read from a file in the structure of a template.

  Args:
    path: of the file, for the errors.
    template: of the same structure; its leaves have a shape and a dtype.
    state: nested dictionaries of arrays.

  Raises:
    lifecycle.Hopeless: if it is of another agent or network; one sentence.
  """
  import jax
  from flax import serialization

  advice = 'it was made by another config; resume with the options of its own run.'
  try:
    fitted = serialization.from_state_dict(template, state)
  except (ValueError, KeyError, TypeError) as error:
    raise lifecycle.Hopeless(f'{path} does not fit this agent: {advice} ({error})') from error
  wanted, _ = jax.tree_util.tree_flatten_with_path(template)
  for (where, leaf), found in zip(wanted, jax.tree.leaves(fitted), strict=True):
    if found.shape != leaf.shape or found.dtype != leaf.dtype:
      raise lifecycle.Hopeless(
        f'{path} has {found.dtype}{list(found.shape)} for {jax.tree_util.keystr(where)}, '
        f'which here is {leaf.dtype}{list(leaf.shape)}: {advice}'
      )
  return fitted


class Checkpointer:
  """Writes checkpoints now and then, from a thread that a stopping process lets finish."""

  def __init__(
    self,
    path: str,
    period: float,
    keep: int,
    save: Callable[[], tuple[Mapping[str, float], Any]],
  ):
    """Initialises a checkpointer.

    Args:
      path: directory of the checkpoints.
      period: seconds between checkpoints; 0 for none at all.
      keep: how many to keep.
      save: returns the counters and the state, as NumPy arrays.
    """
    self._path = path
    self._period = period
    self._keep = keep
    self._save = save
    self._last = time.monotonic()
    self._thread: threading.Thread | None = None
    self.failures = 0

  def maybe_write(self) -> None:
    """Begins to write a checkpoint if one is due and the one before is done."""
    busy = self._thread is not None and self._thread.is_alive()
    if self._period and time.monotonic() - self._last >= self._period and not busy:
      self._begin()

  def write_now(self) -> None:
    """Writes a checkpoint, unless they are switched off, and waits for it."""
    with activity.doing(activity.WRITING_CHECKPOINT):
      self._wait()
      if self._period:
        logging.info('writing the last checkpoint into %s', self._path)
        self._begin()
        self._wait()

  def _wait(self) -> None:
    """Waits for the checkpoint under way, and says so in the log now and then."""
    if self._thread is None:
      return
    began = said = time.monotonic()
    while self._thread.is_alive():
      self._thread.join(_POLL_SECONDS)
      now = time.monotonic()
      if now - said >= _PATIENCE_SECONDS:
        said = now
        logging.info('still writing a checkpoint into %s, for %.0f s', self._path, now - began)

  def _begin(self) -> None:
    self._last = time.monotonic()
    try:
      counts, state = self._save()
    except (lifecycle.Stopped, lifecycle.Hopeless):
      raise
    except Exception as error:
      self._failed(error)
    else:
      self._thread = lifecycle.finish(lambda: self._write(counts, state))

  def _write(self, counts: Mapping[str, float], state: Any) -> None:
    try:
      file = write(self._path, counts, serialise(state), self._keep)
      logging.info('wrote %s', file)
    except Exception as error:  # MemoryError is one.
      self._failed(error)

  def _failed(self, error: Exception) -> None:
    self.failures += 1
    logging.exception('no checkpoint could be written, the earlier ones stay: %r', error)


def _files(path: str) -> list[str]:
  """The checkpoints of a directory, oldest first."""
  if not os.path.isdir(path):
    return []
  named = filter(_NAME.fullmatch, os.listdir(path))
  return sorted((os.path.join(path, name) for name in named), key=_steps_of)


def _steps_of(file: str) -> int:
  return int(os.path.basename(file).partition('.')[0])
