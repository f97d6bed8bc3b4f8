"""The calls of a Reverb server other than the streams of items."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping

from nodes.unrolls.replay_client import connecting, errors, http2, messages
from nodes.unrolls.replay_client.messages import TableInfo
from nodes.unrolls.replay_client.sampler import Sampler
from nodes.unrolls.replay_client.writer import Writer


class ReplayClient:
  """A client of one Reverb server, for all threads.

  Every call raises `ReplayAwayError` if the server cannot be reached, and `ReplayError` with the
  server's text if it rejects the call.
  """

  def __init__(self, address: str):
    """Initialises a client, without a connection yet.

    Args:
      address: host:port of the server.
    """
    self.address = address
    self._idle: list[http2.Connection] = []

  def server_info(self, timeout: float | None = None) -> dict[str, TableInfo]:
    """Returns the tables by name; waits at most `timeout` seconds."""
    return messages.table_infos(self._call('ServerInfo', b'', timeout))

  def mutate_priorities(
    self, table: str, updates: Mapping[int, float], timeout: float | None = None
  ) -> None:
    """Sets the priorities of items by key; those that are gone are skipped."""
    self._call('MutatePriorities', messages.mutation(table, updates), timeout)

  def writer(self) -> Writer:
    """Returns a writer of items, for one thread."""
    return Writer(self.address)

  def sampler(self, table: str, max_in_flight: int) -> Sampler:
    """Returns an iterator over samples of a table, for one thread.

    Args:
      table: name of the table.
      max_in_flight: maximum number of samples that the server has sampled and the iterator has not
        returned.
    """
    return Sampler(self.address, table, max_in_flight)

  def close(self) -> None:
    """Closes the connections that no call uses."""
    while self._idle:
      self._idle.pop().close()

  def _call(self, method: str, request: bytes, timeout: float | None) -> memoryview:
    deadline = None if timeout is None else time.monotonic() + timeout
    connection = self._idle_connection() or connecting.connect(self.address, deadline)
    try:
      connection.begin(messages.SERVICE + method, self.address)
      connection.send([request], last=True)
      while True:
        connection.advance()
        if connection.check():
          break
        if deadline is not None and time.monotonic() >= deadline:
          raise errors.ReplayAwayError(
            f'{self.address} has not replied to {method} in {timeout:g} s'
          )
        http2.wait([connection], [], deadline)
      if not connection.messages:
        raise errors.ReplayAwayError(f'{self.address} has sent no reply to {method}')
      return connection.messages[0]
    except OSError as error:
      connection.close()
      raise errors.ReplayAwayError(f'{self.address}: {error}') from error
    except BaseException:
      connection.close()
      raise
    finally:
      if connection.is_reusable:
        self._idle.append(connection)

  def _idle_connection(self) -> http2.Connection | None:
    """Returns a connection that no call uses and the server has not closed; None if there is none."""
    while True:
      try:
        connection = self._idle.pop()
      except IndexError:
        return None
      with contextlib.suppress(OSError):
        connection.advance()
        if connection.is_reusable:
          return connection
      connection.close()
