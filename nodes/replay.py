"""The replay node, which serves Reverb tables."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

from absl import logging

from nodes.replay_server import child
from nodes.runtime import activity, lifecycle
from nodes.runtime.checkpoint_schedule import CheckpointSchedule
from nodes.runtime.reporter import Reporter
from nodes.unrolls.tables import Table
from rundir.replay_checkpoints import Damaged, ReplayCheckpoints

# Reverb is asked for its tables with this period and deadline. A reply that old is a missing one.
_ASK_SECONDS = 1.0
_REPLY_SECONDS = 5


class ReplayServer:
  """A Reverb server that runs until the program stops and optionally writes checkpoints.

  Reverb runs in a process of its own, `nodes.replay_server`, which ends with this one and fails with it.

  Attributes:
    address: host:port, for clients on this machine.
  """

  def __init__(
    self,
    tables: Sequence[Table],
    monitor: Any,
    name: str,
    checkpoint_dir: str,
    checkpoint_period: float,
    port: int,
  ):
    """Restores the newest intact checkpoint, if any, and starts to listen.

    Args:
      tables: of the server, at least one.
      monitor: client of the monitor; None to report nothing.
      name: of this node, such as 'replay/0'.
      checkpoint_dir: directory of its checkpoints.
      checkpoint_period: seconds between checkpoints; 0 for none.
      port: to listen on.

    Raises:
      OSError: if the port is in use.
      lifecycle.NonRetryableError: if checkpoints exist but none is usable, or Reverb's environment does
        not exist; one sentence.
      RuntimeError: if Reverb does not start.
    """
    self._tables = [dataclasses.asdict(table) for table in tables]
    self._period = checkpoint_period
    self._schedule = CheckpointSchedule(checkpoint_period)
    self._checkpoints = ReplayCheckpoints(checkpoint_dir)
    self._checkpoint_failures = 0
    self._written = False  # Whether the last attempt to write a checkpoint has succeeded.
    listeners = child.listen(port)
    try:
      self._child = self._restore(listeners)
    finally:
      for listener in listeners:
        listener.close()
    if self._child.refusal:
      logging.warning(
        'Reverb has no network namespace of its own, because this system refuses one (%s): other users '
        'of this machine, though nobody on the network, can reach its port.',
        self._child.refusal,
      )
    self.address = f'127.0.0.1:{port}'
    self._replied = time.monotonic()
    self._reporter = Reporter(monitor, name, self.measure)

  def run(self) -> None:
    """Serves until the program stops."""
    stop = lifecycle.stop_event()
    threading.Thread(target=self._ask, args=(stop,), name='ask-reverb', daemon=True).start()
    with contextlib.closing(self), self._reporter:
      self._serve(stop)

  def _serve(self, stop: threading.Event) -> None:
    saving: threading.Thread | None = None
    ended = False  # Whether a checkpoint has begun since the end of training.
    while not stop.wait(0.2):
      self._child.check_alive()
      writing = saving is not None and saving.is_alive()
      self._mark(writing)
      if self._failures():
        self._reporter.maybe_report()
      self._reporter.poll_training_finished()
      # A checkpoint would block too, and has no deadline.
      ends = bool(self._period) and self._reporter.training_finished and not ended and not writing
      if self._replies() and (self._schedule.due(writing) or ends):
        saving = self._begin_checkpoint() or saving
        ended = ended or ends
    with lifecycle.exit_held():
      if saving is not None:
        saving.join()  # Reverb must not close while it writes a checkpoint.
      if self._period and not (ended and self._written):
        self.write_checkpoint()

  def _ask(self, stop: threading.Event) -> None:
    """Asks Reverb for its tables until the program stops, and keeps the time of the latest reply."""
    while not stop.wait(_ASK_SECONDS):
      with contextlib.suppress(RuntimeError, child.Refused):
        self._child.ask()
        self._replied = time.monotonic()

  def _replies(self) -> bool:
    return time.monotonic() - self._replied < _REPLY_SECONDS

  def _mark(self, writing: bool) -> None:
    if writing:  # Reverb replies afterwards.
      self._replied = time.monotonic()
      activity.mark(activity.WRITING_CHECKPOINT)
    elif self._replies():
      activity.mark(activity.SERVING)
    elif activity.latest().activity is not activity.UNANSWERED:
      logging.warning('Reverb has not replied for %g s', _REPLY_SECONDS)
      activity.mark(activity.UNANSWERED)

  def _restore(self, listeners: Sequence[socket.socket]) -> child.Child:
    """Starts Reverb from the newest intact checkpoint, or empty without any."""
    problems = []
    for checkpoint in self._checkpoints.kept():
      try:
        self._checkpoints.check(checkpoint)
        with activity.doing(activity.RESTORING):
          started = self._start(listeners, checkpoint)
        logging.info('resuming from %s', checkpoint)
        return started
      except Damaged as error:
        problem = error
      except child.Refused as error:
        problem = self._checkpoints.damaged(checkpoint, f'Reverb cannot read it ({error})')
      logging.warning('%s', problem)
      problems.append(str(problem))
    if problems:
      raise lifecycle.NonRetryableError(
        f'none of the {len(problems)} replay checkpoints is usable: {problems[0]}; remove them to '
        'start with an empty replay.'
      )
    return self._start(listeners, None)

  def _start(self, listeners: Sequence[socket.socket], checkpoint: str | None) -> child.Child:
    # Reverb deletes everything next to the checkpoint that it writes. It restores another only if its
    # own directory has none, so it gets an empty scratch directory.
    return child.Child(self._tables, self._checkpoints.scratch, checkpoint, listeners)

  def write_checkpoint(self) -> None:
    """Writes all items and the rate limiter's counts; inserts and samples block meanwhile.

    The newest two checkpoints are kept, or one if the disk is full. A failure is logged and counted in
    `measure`; it keeps them.
    """
    try:
      self._checkpoints.make_room()
      written = self._child.write_checkpoint()
      logging.info('wrote %s', self._checkpoints.keep(written))
      self._written = True
    except Exception as error:
      self._checkpoints.empty_scratch()
      self._failed(error)

  def measure(self, seconds: float) -> dict[str, float]:
    """Returns the number of checkpoints so far that could not be written, or were late."""
    return {'checkpoint_failures': float(self._failures())}

  def close(self) -> None:
    """Stops listening."""
    self._child.stop()

  def _begin_checkpoint(self) -> threading.Thread | None:
    """Starts to write a checkpoint; returns None if the system refuses the thread."""
    try:
      return lifecycle.run_before_exit(self.write_checkpoint)
    except RuntimeError as error:
      self._failed(error)
      return None

  def _failed(self, error: Exception) -> None:
    self._written = False
    self._checkpoint_failures += 1
    logging.error('could not write a checkpoint, earlier ones are kept: %s', error)

  def _failures(self) -> int:
    return self._checkpoint_failures + self._schedule.missed
