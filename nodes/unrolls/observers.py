"""Sends copies of unrolls to nodes that observe them, without waiting for one of them.

A queue delivers each unroll once, to the learner. The writer of an unroll sends observers a copy of it
by the RPC

    watch(columns)

whose argument is a dictionary of arrays `[N, ...]`, one entry for each of N unrolls: the leaves of
`agents.types.Unroll`, called as in 'action' or 'timestep/reward', and 'unroll_id'. A node that has not
replied to the last call is skipped: a slow one sees some of the unrolls. Rarely an unroll comes twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent import futures
from typing import Any

import numpy as np

from agents.types import Array


class UnrollObservers:
  """Nodes that are shown unrolls."""

  def __init__(self, clients: Sequence[Any]):
    """Takes a Courier client of each node."""
    self._clients = clients
    self._pending: list[futures.Future | None] = [None] * len(clients)

  def notify(self, columns: Mapping[str, Array]) -> None:
    """Shows unrolls to every node that has answered the last time, or failed to."""
    for i, client in enumerate(self._clients):
      pending = self._pending[i]
      if pending is None or pending.done():
        copies = {name: np.array(values) for name, values in columns.items()}
        self._pending[i] = client.futures.watch(copies)

  def close(self, timeout: float = 0.5) -> None:
    """Waits for the answers under way, as `nodes.runtime.reporter.Reporter.close` does."""
    futures.wait([pending for pending in self._pending if pending is not None], timeout)
