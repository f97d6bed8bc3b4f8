"""The interface of a tracker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from viewing.trackers.records import Header, Outcome, Record


class SinkError(Exception):
  """A tracker cannot be used, or not at the moment; one sentence."""


class Sink(Protocol):
  """A run of a tracker.

  Attributes:
    destination: names the server and the project.
    keeps: whether the tracker has every record once `log` has returned, even if this process is killed.
  """

  destination: str
  keeps: bool

  def start(self, header: Header, key: str, run_id: str) -> tuple[str, str]:
    """Creates the run, or continues it.

    Args:
      header: of the run.
      key: of the export; the same when it continues.
      run_id: what an earlier `start` returned; '' for the first.

    Returns:
      The tracker's name of the run, and where to look at it.

    Raises:
      SinkError: if the tracker cannot be used.
    """

  def log(self, records: Sequence[Record], first: int) -> None:
    """Sends records; repeated ones change nothing.

    Args:
      records: in order.
      first: number of the first one, which the export has counted from 0.

    Raises:
      SinkError: if they may not have arrived; the caller may repeat the call.
    """

  def end(self, outcome: Outcome) -> None:
    """Sends how the run ended, and ends it."""

  def close(self) -> None:
    """Leaves the run, which a later process may continue; also called after `end`."""
