"""Handles several calls at once, as `launchpad.batched_handler` asks for.

In a batch, arrays get a leading axis: [B, ...]. Numbers and booleans become arrays [B]. Tuples and
dictionaries are batched element by element. Everything else becomes a list of B values. A result is
taken apart in the same way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


class Batcher:
  """A handler that calls another one with a batch of calls.

  A call waits in its thread for its batch. The call that fills a batch handles it; if the time is up
  before, the batch's first call does.
  """

  def __init__(
    self,
    handler: Callable[..., Any],
    batch_size: int,
    max_parallelism: int,
    timeout: float,
    pad: bool,
  ):
    """Initialises a handler; see `pybind.BuildBatchedHandlerWrapper`, but `timeout` is in seconds."""
    self._handler = handler
    self._batch_size = batch_size
    self._timeout = timeout
    self._pad = pad
    self._lock = threading.Lock()
    self._slots = threading.Semaphore(max_parallelism)
    self._filling = _Batch()

  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    """Returns this call's part of the result of its batch."""
    with self._lock:
      batch = self._filling
      index = len(batch.calls)
      batch.calls.append((args, kwargs))
      if len(batch.calls) == self._batch_size:
        self._filling = _Batch()
        batch.is_full.set()
    if index == 0:  # Several may wait for a slot, and their batches fill up meanwhile.
      batch.is_full.wait(self._timeout)
      with self._slots:
        self._handle(batch)
    batch.is_handled.wait()
    if batch.error is not None:
      raise batch.error
    return batch.results[index]

  def _handle(self, batch: _Batch) -> None:
    try:
      with self._lock:
        if self._filling is batch:
          self._filling = _Batch()
      calls = list(batch.calls)
      if self._pad:
        calls += [calls[0]] * (self._batch_size - len(calls))
      args, kwargs = stack(calls)
      batch.results = unstack(self._handler(*args, **kwargs), len(calls))
    except BaseException as error:
      batch.error = error
    batch.is_handled.set()


class _Batch:
  """Calls that are handled together."""

  def __init__(self) -> None:
    self.calls: list[tuple[Sequence[Any], dict[str, Any]]] = []
    self.results: Sequence[Any] = ()
    self.error: BaseException | None = None
    self.is_full = threading.Event()
    self.is_handled = threading.Event()


def stack(values: Sequence[Any]) -> Any:
  """Returns the batch of some values.

  Raises:
    ValueError: if they differ in structure, shape or type.
  """
  first = values[0]
  if isinstance(first, (bool, int, float, np.generic)) or hasattr(first, '__array__'):
    arrays = [np.asarray(value) for value in values]
    if len({(array.shape, array.dtype) for array in arrays}) > 1:
      raise ValueError('arrays of a batch need to have one shape and one type.')
    return np.stack(arrays)
  if isinstance(first, tuple):
    if len({(type(value), len(value)) for value in values}) > 1:
      raise ValueError('tuples of a batch need to have one length.')
    return _tuple(first, [stack(column) for column in zip(*values, strict=True)])
  if isinstance(first, dict):
    if any(not isinstance(value, dict) or value.keys() != first.keys() for value in values):
      raise ValueError('dictionaries of a batch need to have the same keys.')
    return {key: stack([value[key] for value in values]) for key in first}
  return list(values)


def unstack(batch: Any, size: int) -> list[Any]:
  """Returns the `size` values of a batch.

  Raises:
    ValueError: if it is not a batch of that size.
  """
  if isinstance(batch, tuple):
    columns = [unstack(element, size) for element in batch]
    return [_tuple(batch, row) for row in zip(*columns, strict=True)] or [batch] * size
  if isinstance(batch, dict):
    columns = [unstack(element, size) for element in batch.values()]
    return [dict(zip(batch, row, strict=True)) for row in zip(*columns, strict=True)] or [{}] * size
  length = (len(batch),) if isinstance(batch, list) else getattr(batch, 'shape', ())[:1]
  if length != (size,):
    raise ValueError(f'a batched handler needs to return a batch of {size} results.')
  return list(batch)


def _tuple(like: tuple, elements: Sequence[Any]) -> tuple:
  """Returns a tuple, or a named one, with the type of another."""
  return like._make(elements) if hasattr(like, '_make') else type(like)(elements)
