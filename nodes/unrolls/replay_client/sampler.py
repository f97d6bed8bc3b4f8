"""Samples items of a table of a Reverb server."""

from __future__ import annotations

import collections
import contextlib
import queue
import threading
import time

from courier import sockets
from nodes.unrolls.replay_client import connecting, errors, http2, messages
from nodes.unrolls.replay_client.retries import Retries
from nodes.unrolls.replay_client.samples import Sample, SampleParser

_CLOSE_SECONDS = 1.0  # For a thread that may be connecting.


class Sampler:
  """An iterator without end over the samples of a table, for one thread.

  A thread of its own receives, so that samples arrive while their user works. While the server is away
  it tries again; samples that were under way are then lost, and others are requested in their place.
  """

  def __init__(self, address: str, table: str, max_in_flight: int):
    """Starts to sample; see `ReplayClient.sampler`."""
    self._address = address
    self._table = table
    self._step = max(1, max_in_flight // 2)  # Samples returned before others are requested.
    self._samples: collections.deque[Sample] = collections.deque()
    self._parser = SampleParser(table)
    self._returned = 0  # Since samples were last requested.
    self._parsed = 0  # On this connection.
    # Messages, the number of samples requested on a lost connection, an error, or None at the end.
    self._received: queue.SimpleQueue[memoryview | int | Exception | None] = queue.SimpleQueue()
    self._lock = threading.Lock()
    self._wanted = max_in_flight  # To be requested.
    self._closed = False
    self._waker = sockets.Waker()
    self._thread = threading.Thread(target=self._run, name='replay-sampler', daemon=True)
    self._thread.start()

  def __iter__(self) -> Sampler:
    """Returns itself."""
    return self

  def __next__(self) -> Sample:
    """Returns a sample; waits for one without a limit.

    Raises:
      ReplayError: if the server rejects the call, as for an unknown table.
      StopIteration: once the sampler is closed.
    """
    while not self._samples:
      self._take(self._received.get())
    sample = self._samples.popleft()
    self._returned += 1
    if self._returned >= self._step:
      self._request(self._returned)
      self._returned = 0
    return sample

  def close(self) -> None:
    """Ends the thread and closes its connection."""
    self._closed = True
    self._received.put(None)
    self._waker.wake()
    self._thread.join(_CLOSE_SECONDS)

  def _take(self, received: memoryview | int | Exception | None) -> None:
    if isinstance(received, memoryview):
      samples = self._parser.parse(received)
      self._parsed += len(samples)
      self._samples.extend(samples)
    elif isinstance(received, int):
      self._request(received - self._parsed)
      self._parser, self._parsed = SampleParser(self._table), 0
    else:
      self._received.put(received)  # For the next call.
      if received is None:
        raise StopIteration
      raise received

  def _request(self, count: int) -> None:
    with self._lock:
      self._wanted += count
    self._waker.wake()

  def _run(self) -> None:
    with contextlib.closing(self._waker):
      self._receive_all()

  def _receive_all(self) -> None:
    """Receives until the sampler is closed or the server rejects the call."""
    retries = Retries(self._address)
    while not self._closed:
      requested = [0]
      try:
        self._receive(requested, retries)
      except (OSError, errors.ReplayAwayError) as error:
        self._received.put(requested[0])
        self._pause(retries.failed(error))
      except Exception as error:
        self._received.put(error)
        return

  def _receive(self, requested: list[int], retries: Retries) -> None:
    """Receives until the connection is lost; counts the samples that it has requested."""
    connection = connecting.connect(self._address)
    try:
      connection.begin(messages.SERVICE + 'SampleStream', self._address)
      while not self._closed:
        with self._lock:
          wanted, self._wanted = self._wanted, 0
        if wanted:
          requested[0] += wanted
          connection.send([messages.sample_request(self._table, wanted)])
        connection.advance()
        received, connection.messages = connection.messages, []
        for data in received:
          self._received.put(data)
        if received:
          retries.succeeded()
        if connection.check():
          raise errors.ReplayAwayError('the server has ended the call')
        http2.wait([connection], [self._waker], None)
        self._waker.clear()
    finally:
      connection.close()

  def _pause(self, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not self._closed and (left := deadline - time.monotonic()) > 0:
      time.sleep(min(left, 0.1))
