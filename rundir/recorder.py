"""Writes measurements in a separate thread, so that reports never wait for the disk."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Mapping
from typing import NamedTuple

from absl import logging

from rundir import node_files, videos
from rundir.csv_file import CsvWriter
from rundir.event_file import EventFile

_CAPACITY = 10_000  # Queued rows. Thousands of nodes may report at one time, as after a restart.
# A full disk accepts some rows and rejects others; errors within this time count as one problem.
_CALM_SECONDS = 10.0


class _Row(NamedTuple):
  node: str
  row: Mapping[str, float]
  step: int
  scalars: Mapping[str, float]


class _Video(NamedTuple):
  actor_steps: int
  frames: int
  gif: bytes


class Recorder:
  """Writes rows to `logs/<node>.csv`, videos to `videos/`, and both to TensorBoard.

  Rows are dropped and counted if the disk is full, or if the queue is full because the disk does not
  respond. The recorder tries every row, so writing resumes once there is room.

  Attributes:
    problem: why measurements are being dropped, in one sentence; '' if none are.
    lost: number of rows so far that were not fully written.
  """

  def __init__(self, run_dir: str, videos_kept: int = 5):
    """Initialises a recorder; its thread starts with the first row or video.

    Args:
      run_dir: the run directory.
      videos_kept: number of videos to keep, the newest.
    """
    self._run_dir = run_dir
    self._videos_kept = videos_kept
    self._rows: queue.Queue[_Row | _Video | None] = queue.Queue(_CAPACITY)
    self._tables: dict[str, CsvWriter] = {}
    self._events: EventFile | None = None
    self._thread: threading.Thread | None = None
    self.problem = ''
    self.lost = 0
    self._lost_last = 0.0

  def __enter__(self) -> Recorder:
    return self

  def __exit__(self, *raised: object) -> None:
    self.close()

  def put(
    self, node: str, row: Mapping[str, float], step: int, scalars: Mapping[str, float]
  ) -> None:
    """Queues a node's measurements without waiting.

    Args:
      node: such as 'actor/3'.
      row: for its CSV file.
      step: of the scalars.
      scalars: by tag; finite.
    """
    self._put(_Row(node, dict(row), step, dict(scalars)))

  def put_video(self, actor_steps: int, frames: int, gif: bytes) -> None:
    """Queues a video without waiting.

    Args:
      actor_steps: names its file.
      frames: environment frames of the program, its step in TensorBoard.
      gif: its content.
    """
    self._put(_Video(actor_steps, frames, gif))

  def _put(self, record: _Row | _Video) -> None:
    if self._thread is None:
      self._thread = threading.Thread(target=self._run, name='recorder', daemon=True)
      self._thread.start()
    try:
      self._rows.put_nowait(record)
    except queue.Full:
      self._lose('the disk does not answer')

  def flush(self, timeout: float = 60.0) -> bool:
    """Waits at most `timeout` seconds for the queued rows; returns whether none is left."""
    with self._rows.all_tasks_done:
      return self._rows.all_tasks_done.wait_for(lambda: not self._rows.unfinished_tasks, timeout)

  def close(self, timeout: float = 10.0) -> None:
    """Writes the queued rows; waits at most `timeout` seconds for each of queue and thread."""
    if self._thread is not None:
      try:
        self._rows.put(None, timeout=timeout)
      except queue.Full:
        return
      self._thread.join(timeout)

  def _run(self) -> None:
    while row := self._rows.get():
      try:
        self._write(row)
      except Exception as error:  # Any error: the next row may succeed.
        self._lose(getattr(error, 'strerror', None) or repr(error))
      else:
        self._recover()
      finally:
        self._rows.task_done()
    self._rows.task_done()
    for table in self._tables.values():
      table.close()
    if self._events is not None:
      self._events.close()

  def _write(self, row: _Row | _Video) -> None:
    if isinstance(row, _Video):
      videos.write(self._run_dir, row.actor_steps, row.frames, row.gif, self._videos_kept)
      return
    if row.node not in self._tables:
      self._tables[row.node] = CsvWriter(node_files.csv_path(self._run_dir, row.node))
    self._tables[row.node].write(row.row)
    if self._events is None:
      self._events = EventFile(os.path.join(self._run_dir, 'tensorboard'))
    self._events.write(row.step, row.scalars)

  def _lose(self, why: str) -> None:
    self.lost += 1
    self._lost_last = time.monotonic()
    if not self.problem:
      logging.error('measurements are lost: %s', why)
      self.problem = f'measurements are lost, {self._run_dir} cannot be written: {why}'

  def _recover(self) -> None:
    if self.problem and time.monotonic() - self._lost_last >= _CALM_SECONDS:
      logging.warning('measurements are written again; %d rows were lost so far', self.lost)
      self.problem = ''
