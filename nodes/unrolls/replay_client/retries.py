"""When a stream to a replay server that is away is opened again."""

from __future__ import annotations

from absl import logging

from nodes.runtime import rpc


class Retries:
  """The pauses of one stream, which grow during an outage, and one warning for each outage."""

  def __init__(self, address: str):
    """Initialises the retries of a stream to a server, host:port."""
    self._address = address
    self._is_logged = False
    self._pauses = rpc.backoff()

  def succeeded(self) -> None:
    """Takes note that the server has replied, which ends an outage."""
    if self._is_logged:
      self._is_logged = False
      self._pauses = rpc.backoff()

  def failed(self, error: Exception) -> float:
    """Takes note of a failure; returns the seconds to wait before the next attempt."""
    if not self._is_logged:
      self._is_logged = True
      logging.warning('replay at %s is away, retrying: %s', self._address, error)
    return next(self._pauses)
