"""Inserts items into the tables of a Reverb server."""

from __future__ import annotations

import collections
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from nodes.unrolls.replay_client import connecting, errors, http2, messages
from nodes.unrolls.replay_client.retries import Retries

_MESSAGE_BYTES = 1 << 20  # Size at which no further row is added to a message.
_QUEUED_BYTES = 4 << 20  # Size of the messages that wait for the server's window.


class Writer:
  """Inserts items of one row into the tables of a server.

  `flush` sends, and waits until the server has confirmed. What the server has not confirmed when it
  restarts, or when the connection is lost, is sent again with the same keys.
  """

  def __init__(self, address: str):
    """Initialises a writer, without a connection yet.

    Args:
      address: host:port of the server.
    """
    self._address = address
    self._episode = int.from_bytes(os.urandom(8), 'little')
    self._unsent: collections.deque[_Row] = collections.deque()
    self._unconfirmed: dict[bytes, _Row] = {}  # By the key of each item.
    self._connection: http2.Connection | None = None
    self._retries = Retries(address)
    self._retry_at = 0.0

  def insert(self, row: Sequence[http2.Buffer], priorities: Mapping[str, float]) -> None:
    """Queues an item of one row for each of some tables.

    Args:
      row: its bytes in parts, each contiguous; not copied, so they must not change before the item is
        confirmed.
      priorities: of the item in each table, by the table's name; at least 0.

    Raises:
      ValueError: if a priority is negative or no number, which would end the table.
    """
    if not all(priority >= 0 for priority in priorities.values()):
      raise ValueError(f'a priority must be at least 0, unlike one of {dict(priorities)}')
    self._unsent.append(_Row(row, priorities, self._episode))

  def flush(self, timeout: float) -> bool:
    """Sends what is queued; returns whether the server has confirmed all within `timeout` seconds.

    A full table confirms nothing. A server that is away is tried again, here or in a later call.

    Raises:
      ReplayError: if the server rejects an item.
    """
    return flush([self], timeout)

  def close(self) -> None:
    """Closes the connection; items that the server has not confirmed may be lost."""
    if self._connection is not None:
      self._connection.close()
      self._connection = None

  @property
  def _is_done(self) -> bool:
    return not self._unsent and not self._unconfirmed

  def _advance(self) -> None:
    """Sends and takes confirmations as far as possible at once; connects if it must."""
    try:
      connection = self._connected()
      if connection is None:
        return
      while True:
        while self._unsent and connection.unsent < _QUEUED_BYTES:
          connection.send(self._next_message())
        connection.advance()
        received, connection.messages = connection.messages, []
        for data in received:
          self._retries.succeeded()
          for key in messages.confirmed_keys(data):
            row = self._unconfirmed.pop(key, None)
            if row is not None:
              row.items.pop(key, None)
        if connection.check():
          raise errors.ReplayAwayError('the server has ended the call')
        if not self._unsent or connection.unsent >= _QUEUED_BYTES:
          return
    except (OSError, errors.ReplayAwayError) as error:
      self._send_again()
      self._retry_at = time.monotonic() + self._retries.failed(error)

  def _connected(self) -> http2.Connection | None:
    if self._connection is None and time.monotonic() >= self._retry_at:
      self._connection = connecting.connect(self._address)
      self._connection.begin(messages.SERVICE + 'InsertStream', self._address)
    return self._connection

  def _next_message(self) -> list[Any]:
    parts: list[Any] = []
    size = 0
    while self._unsent and size < _MESSAGE_BYTES:
      row = self._unsent.popleft()
      parts += row.parts
      parts += row.items.values()
      size += row.size
      for key in row.items:
        self._unconfirmed[key] = row
    return parts

  def _send_again(self) -> None:
    """Drops the connection, and queues what is unconfirmed before what is unsent."""
    self.close()
    rows = dict.fromkeys(self._unconfirmed.values())
    self._unconfirmed.clear()
    self._unsent.extendleft(reversed(rows))


class _Row:
  """A row, and the items that have it.

  Attributes:
    items: the unconfirmed ones, encoded, by key.
    parts: the row, encoded.
    size: of `parts` in bytes, about.
  """

  def __init__(self, row: Sequence[http2.Buffer], priorities: Mapping[str, float], episode: int):
    chunk_key = messages.new_key()
    keys = [messages.new_key() for _ in priorities]
    self.items = {
      key: messages.item(key, table, priority, chunk_key)
      for key, (table, priority) in zip(keys, priorities.items(), strict=True)
    }
    self.parts = messages.chunk(chunk_key, episode, row)
    self.size = sum(map(len, self.parts))


def flush(writers: Sequence[Writer], timeout: float) -> bool:
  """Flushes several writers at once; see `Writer.flush`."""
  deadline = time.monotonic() + timeout
  while True:
    for writer in writers:
      if not writer._is_done:
        writer._advance()
    waiting = [writer for writer in writers if not writer._is_done]
    if not waiting:
      return True
    now = time.monotonic()
    if now >= deadline:
      return False
    until = deadline
    for writer in waiting:
      if writer._connection is None:
        until = min(until, writer._retry_at)
    connections = [w._connection for w in waiting if w._connection is not None]
    http2.wait(connections, [], until)
