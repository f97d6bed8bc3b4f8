"""Replay servers: the Reverb tables and the node that serves them."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence

import reverb

from nodes import lifecycle

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
  """A Reverb server that lives until the program stops."""

  def __init__(self, tables: Callable[[], Sequence[reverb.Table]], checkpoint_dir: str, port: int):
    """Restores the newest checkpoint, if there is one, and starts to listen.

    Args:
      tables: builds the tables, in this process.
      checkpoint_dir: where checkpoints are, and will be when a client asks for one.
      port: to listen on.

    Raises:
      OSError: if the port is in use. Reverb alone would share it in silence.
    """
    with socket.socket(socket.AF_INET6) as probe:
      # Connections of an earlier life may still be closing; another server would still be noticed.
      probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
      probe.bind(('', port))
    os.makedirs(checkpoint_dir, exist_ok=True)
    checkpointer = reverb.checkpointers.DefaultCheckpointer(checkpoint_dir)
    self._server = reverb.Server(tables(), port, checkpointer)

  def run(self) -> None:
    """Serves until the program stops."""
    lifecycle.stop_event().wait()
    self.close()

  def close(self) -> None:
    """Stops to listen."""
    self._server.stop()
