"""Replay servers: the Reverb tables and the node that serves them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import reverb
from absl import logging

from nodes import lifecycle, listening
from nodes.reporter import Reporter

TABLE = 'unrolls'


def queue_table(max_size: int) -> list[reverb.Table]:
  """Returns a FIFO table that delivers each unroll once and blocks writers while it is full.

  Args:
    max_size: unrolls that may wait.
  """
  return [reverb.Table.queue(TABLE, max_size)]


def prioritized_table(
  max_size: int,
  min_size: int,
  samples_per_insert: float,
  error_buffer: float,
  priority_exponent: float,
) -> list[reverb.Table]:
  """Returns a table that samples by priority and drops the oldest unroll when it is full.

  Args:
    max_size: unrolls held at most.
    min_size: unrolls held before the first is sampled.
    samples_per_insert: how often an unroll is sampled on average, over the whole run.
    error_buffer: samples by which the ratio may be ahead or behind before one side is blocked.
    priority_exponent: P(i) is proportional to priority(i) to this power. The table applies it.
  """
  return [
    reverb.Table(
      TABLE,
      sampler=reverb.selectors.Prioritized(priority_exponent),
      remover=reverb.selectors.Fifo(),
      max_size=max_size,
      rate_limiter=reverb.rate_limiters.SampleToInsertRatio(
        samples_per_insert, min_size, float(error_buffer)
      ),
    )
  ]


class ReplayServer:
  """A Reverb server that lives until the program stops, and writes checkpoints if it is told to."""

  def __init__(
    self,
    tables: Callable[[], Sequence[reverb.Table]],
    monitor: Any,
    name: str,
    checkpoint_dir: str,
    checkpoint_period: float,
    port: int,
  ):
    """Restores the newest checkpoint, if there is one, and starts to listen.

    Args:
      tables: builds the tables, in this process.
      monitor: client of the monitor; None to report nothing.
      name: of this node, such as 'replay/0'.
      checkpoint_dir: where its checkpoints are.
      checkpoint_period: seconds between checkpoints; 0 for none.
      port: to listen on.

    Raises:
      OSError: if the port is in use. Reverb alone would share it in silence.
    """
    listening.check_free(port)
    self._period = checkpoint_period
    os.makedirs(checkpoint_dir, exist_ok=True)
    checkpointer = reverb.checkpointers.DefaultCheckpointer(checkpoint_dir)
    self._server = reverb.Server(tables(), port, checkpointer)
    self._address = f'127.0.0.1:{port}'
    self._reporter = Reporter(monitor, name)

  def run(self) -> None:
    """Serves until the program stops."""
    stop = lifecycle.stop_event()
    last, saving = time.monotonic(), None
    while not stop.wait(0.2):
      self._reporter.beat()
      due = self._period and time.monotonic() - last >= self._period
      if due and (saving is None or not saving.is_alive()):
        last, saving = time.monotonic(), lifecycle.finish(self._checkpoint)
    if self._period and not self._reporter.training_finished:
      if saving is not None:
        saving.join()
      lifecycle.finish(self._checkpoint).join()
    self._reporter.close()
    self.close()

  def _checkpoint(self) -> None:
    """Writes all items and the rate limiter's counts. Inserting and sampling wait meanwhile."""
    try:
      logging.info('wrote %s', reverb.Client(self._address).checkpoint())
    except Exception as error:
      logging.error('no checkpoint could be written, the earlier one stays: %s', error)

  def close(self) -> None:
    """Stops to listen."""
    self._server.stop()
