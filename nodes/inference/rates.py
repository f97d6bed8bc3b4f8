"""Measures the inference of all actor devices together."""

from __future__ import annotations

from collections.abc import Sequence

from nodes.inference.device import DeviceInference

_NAN = float('nan')


class InferenceRates:
  """Rates and means over the time between two calls of `measure`."""

  def __init__(self, devices: Sequence[DeviceInference], num_threads: int):
    """Initialises the rates.

    Args:
      devices: inference on each actor device.
      num_threads: threads that may serve batches at once.
    """
    self._devices = devices
    self._num_threads = num_threads
    self._measured = (0, 0, 0, 0.0)

  def measure(self, seconds: float) -> dict[str, float]:
    """Returns rates and means over the last `seconds`; means without a batch are NaN."""
    now = (
      sum(d.batches for d in self._devices),
      sum(d.rows for d in self._devices),
      sum(d.capacity for d in self._devices),
      sum(d.busy_seconds for d in self._devices),
    )
    batches, rows, capacity, busy = (a - b for a, b in zip(now, self._measured, strict=True))
    self._measured = now
    return {
      'inference_batches_per_second': batches / seconds,
      'inference_batch_rows': rows / batches if batches else _NAN,
      'inference_batch_fill': rows / capacity if capacity else _NAN,
      'inference_busy_share': busy / (seconds * self._num_threads),
      'inference_latency_ms': 1e3 * busy / batches if batches else _NAN,
    }
