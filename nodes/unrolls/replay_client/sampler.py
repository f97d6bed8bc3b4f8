"""Samples items of a table of a Reverb server."""

from __future__ import annotations

import collections
import queue
import threading
import time
from typing import Any

from absl import logging

from courier import sockets
from nodes.runtime import rpc
from nodes.unrolls.replay_client import connecting, errors, http2, messages
from nodes.unrolls.replay_client.messages import Sample, SampleParser


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
    self._parser = SampleParser()
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
    self._thread.join()
    self._waker.close()

  def _take(self, received: memoryview | int | Exception | None) -> None:
    if isinstance(received, memoryview):
      samples = self._parser.parse(received)
      self._parsed += len(samples)
      self._samples.extend(samples)
    elif isinstance(received, int):
      self._request(received - self._parsed)
      self._parser, self._parsed = SampleParser(), 0
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
    pauses = rpc.backoff()
    while not self._closed:
      requested = [0]
      started = time.monotonic()
      try:
        self._receive(requested)
      except (OSError, errors.ReplayAwayError) as error:
        if self._closed:
          return
        logging.warning('replay at %s is away, retrying: %s', self._address, error)
      except Exception as error:
        self._received.put(error)
        return
      self._received.put(requested[0])
      if time.monotonic() - started > 10:
        pauses = rpc.backoff()
      self._pause(next(pauses))

  def _receive(self, requested: list[int]) -> None:
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
