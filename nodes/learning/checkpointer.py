"""Writes a learner's checkpoints and its final parameters."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from absl import logging

from nodes.learning import serialisation
from nodes.runtime import activity, full_disk, lifecycle
from nodes.runtime.checkpoint_schedule import CheckpointSchedule
from rundir import checkpoints, final_params

# Seconds between polls of a checkpoint thread, and between log messages about it.
_POLL_SECONDS = 0.5
_PATIENCE_SECONDS = 30.0


class Checkpointer:
  """Writes periodic checkpoints from a thread that finishes before the process exits."""

  def __init__(
    self,
    path: str,
    period: float,
    keep: int,
    save: Callable[[], tuple[Mapping[str, float], Any]],
    writes: bool = True,
  ):
    """Initialises a checkpointer.

    Args:
      path: directory of the checkpoints.
      period: seconds between checkpoints; 0 disables them.
      keep: number of checkpoints to keep.
      save: returns the counters and the state, as NumPy arrays.
      writes: False for one of several replicas that `save` together, of which another one writes.
    """
    self._path = path
    self._period = period
    self._keep = keep
    self._save = save
    self._writes = writes
    self._schedule = CheckpointSchedule(period)
    self._thread: threading.Thread | None = None
    self._failures = 0

  @property
  def failures(self) -> int:
    """Checkpoints so far that failed, or were late."""
    return self._failures + self._schedule.missed

  def due(self) -> bool:
    """Returns whether to `begin` a checkpoint: once a period, unless the previous one is incomplete."""
    busy = self._thread is not None and self._thread.is_alive()
    return self._writes and self._schedule.due(busy)

  def write_now(self, should_stop: Callable[[], bool] | None = None) -> None:
    """Writes a checkpoint and waits for it; does nothing if `period` is 0.

    Args:
      should_stop: while the disk is full, retries until it returns True; None not to retry.
    """
    # Held: the process may be stopping, and this thread waits and copies the state before it writes.
    with activity.doing(activity.WRITING_CHECKPOINT), lifecycle.exit_held():
      self._wait()
      if self._period:
        if self._writes:
          logging.info('writing the last checkpoint into %s', self._path)
        self.begin(should_stop)
        self._wait()

  def _wait(self) -> None:
    """Waits for the current checkpoint and logs the wait every 30 seconds."""
    if self._thread is None:
      return
    began = said = time.monotonic()
    while self._thread.is_alive():
      self._thread.join(_POLL_SECONDS)
      now = time.monotonic()
      if now - said >= _PATIENCE_SECONDS:
        said = now
        logging.info('still writing a checkpoint into %s, for %.0f s', self._path, now - began)

  def begin(self, should_stop: Callable[[], bool] | None = None) -> None:
    """Saves, and starts to write what was saved; arguments as of `write_now`."""
    try:
      counts, state = self._save()
      if self._writes:
        self._thread = lifecycle.run_before_exit(lambda: self._write(counts, state, should_stop))
    except (lifecycle.Stopped, lifecycle.NonRetryableError):
      raise
    except Exception as error:  # Includes MemoryError, and a thread that the system refuses.
      self._failed(error)

  def _write(
    self, counts: Mapping[str, float], state: Any, should_stop: Callable[[], bool] | None
  ) -> None:
    try:
      content = serialisation.serialise(state)
      write = functools.partial(checkpoints.write, self._path, counts, content, self._keep)
      if should_stop is None:
        file = write()
      else:
        file = full_disk.write_when_there_is_room(write, should_stop, self._path)
      logging.info('wrote %s', file)
    except Exception as error:  # Includes MemoryError.
      self._failed(error)

  def _failed(self, error: Exception) -> None:
    self._failures += 1
    logging.exception('could not write a checkpoint, earlier ones are kept: %r', error)


def save_final_params(run_dir: str, params: Any, should_stop: Callable[[], bool]) -> None:
  """Writes the final parameters; retries while the disk is full. See `nodes.runtime.full_disk`."""
  content = serialisation.serialise(params)
  full_disk.write_when_there_is_room(
    lambda: final_params.save(run_dir, content), should_stop, final_params.path(run_dir)
  )
