"""Tells from a run directory whether the run is in progress."""

from __future__ import annotations

import collections
import contextlib
import os
import time

from rundir import directory_lock, node_files, reading, run_directory, run_end

ENDED, RUNNING, STOPPED = 'ended', 'running', 'stopped'
# A run without a lock on this machine counts as stopped after this time without a write.
SILENT_SECONDS = 60.0
# Files of one kind in one group that are looked at. Of thousands of actors some write every second.
_FILES_OF_GROUP = 64


class Liveness:
  """Whether a run is in progress; `update` reads its directory.

  Attributes:
    state: ENDED after its work, RUNNING, or STOPPED before its end.
    written: time of the last write, by the clock of the machine that runs the program.
  """

  def __init__(self, run_dir: str):
    """Initialises the state of a run whose directory has not been read."""
    self._run_dir = run_dir
    self._changed = 0.0  # By the monotonic clock.
    self.state = RUNNING
    self.written = 0.0

  def update(self) -> None:
    """Reads the directory."""
    written = self._last_written()
    if written != self.written:
      # The file's age is used once only. Clocks may differ, so later only a change of time counts.
      age = 0.0 if self.written else max(time.time() - written, 0.0)
      self.written, self._changed = written, time.monotonic() - age
    silent = time.monotonic() - self._changed
    if run_end.has_ended(self._run_dir):
      self.state = ENDED
    elif run_end.end_of(self._run_dir) is not None:
      self.state = STOPPED
    elif silent < SILENT_SECONDS or directory_lock.is_taken(self._run_dir):
      self.state = RUNNING
    else:
      self.state = STOPPED

  def _last_written(self) -> float:
    folder = node_files.directory(self._run_dir)
    files, counts = [], collections.Counter[tuple[str, str]]()
    for name in reading.names(folder):
      group = name.rpartition('-')[0], os.path.splitext(name)[1]
      counts[group] += 1
      if counts[group] <= _FILES_OF_GROUP:
        files.append(os.path.join(folder, name))
    files.append(os.path.join(self._run_dir, 'config.json'))
    files.append(run_directory.processes_path(self._run_dir))
    latest = 0.0
    for file in files:
      with contextlib.suppress(OSError):  # It may be removed meanwhile.
        latest = max(latest, os.path.getmtime(file))
    return latest
