"""Sends copies of unrolls to observer nodes without waiting for them.

A queue delivers each unroll once, to the learner. The writer of an unroll sends observers a copy of it
by the RPC

    watch(columns)

Its argument is a dictionary of arrays `[N, ...]` for N unrolls. The keys name the leaves of
`agents.types.Unroll`, as in 'action' or 'timestep/reward', and 'unroll_id'. A node that has not replied
to the previous call is skipped, so a slow node sees only some of the unrolls. Duplicates are rare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent import futures
from typing import Any

import numpy as np
from absl import logging

from agents.types import Array

_WARNING_SECONDS = 60


class UnrollObservers:
  """The nodes that observe unrolls."""

  def __init__(self, clients: Sequence[Any]):
    """Initialises with one Courier client per node."""
    self._clients = clients
    self._pending: list[futures.Future | None] = [None] * len(clients)

  def notify(self, columns: Mapping[str, Array]) -> None:
    """Sends unrolls to each node whose previous call has completed or failed; logs failures."""
    for i, client in enumerate(self._clients):
      pending = self._pending[i]
      if pending is None or pending.done():
        if pending is not None and (error := pending.exception()):
          logging.log_every_n_seconds(
            logging.WARNING, 'an observer got no unrolls: %r', _WARNING_SECONDS, error
          )
        arrays = {name: np.asarray(values) for name, values in columns.items()}
        self._pending[i] = client.futures.watch(arrays)  # The call copies them.

  def close(self, timeout: float = 0.5) -> None:
    """Waits for pending replies, as `nodes.runtime.reporter.Reporter.close` does."""
    futures.wait([pending for pending in self._pending if pending is not None], timeout)
