"""Handlers of calls, under the names that Launchpad knows."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def BuildPyCallHandler(function: Callable[..., Any]) -> Callable[..., Any]:
  """Returns a handler that calls a function."""
  return function


def BuildBatchedHandlerWrapper(
  name: str,
  handler: Callable[..., Any],
  batch_size: int,
  max_parallelism: int,
  timeout: datetime.timedelta | float,
  pad_batch: bool,
) -> Callable[..., Any]:
  """Returns a handler that calls another one with several calls at once.

  Args:
    name: of the method.
    handler: takes and returns batches; see `courier.handlers.batching`.
    batch_size: number of calls of a full batch.
    max_parallelism: number of batches that are handled at once.
    timeout: time after which a batch that is not full is handled; a number is milliseconds, which
      Launchpad 0.5.2 passes.
    pad_batch: whether to fill such a batch with copies of its first call.
  """
  from courier.handlers import batching  # Imports NumPy, which other handlers do without.

  if not isinstance(timeout, datetime.timedelta):
    timeout = datetime.timedelta(milliseconds=timeout)
  seconds = timeout.total_seconds()
  return batching.Batcher(handler, batch_size, max_parallelism, seconds, pad_batch)


def CallHandler(
  handler: Callable[..., Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
  """Calls a handler in this process."""
  return handler(*args, **kwargs)
