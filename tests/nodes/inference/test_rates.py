"""The rates of inference on all actor devices together."""

import math
import types

from nodes.inference.rates import InferenceRates


def _device(batches, rows, capacity, busy_seconds):
  return types.SimpleNamespace(
    batches=batches, rows=rows, capacity=capacity, busy_seconds=busy_seconds
  )


def test_rates_and_means_are_those_of_the_time_since_the_last_measurement():
  one, other = _device(3, 20, 24, 1.5), _device(1, 4, 8, 0.5)
  rates = InferenceRates([one, other], num_threads=4)
  assert rates.measure(2.0) == {
    'inference_batches_per_second': 2.0,
    'inference_batch_rows': 6.0,
    'inference_batch_fill': 0.75,
    'inference_busy_share': 0.25,
    'inference_latency_ms': 500.0,
  }
  vars(one).update(batches=4, rows=26, capacity=32, busy_seconds=1.75)
  vars(other).update(batches=2, rows=6, capacity=16, busy_seconds=1.25)
  assert rates.measure(8.0) == {
    'inference_batches_per_second': 0.25,
    'inference_batch_rows': 4.0,
    'inference_batch_fill': 0.5,
    'inference_busy_share': 0.03125,
    'inference_latency_ms': 500.0,
  }


def test_without_a_batch_the_means_are_not_numbers():
  rates = InferenceRates([_device(3, 20, 24, 1.5)], num_threads=1)
  rates.measure(1.0)
  measured = rates.measure(1.0)
  assert [name for name, value in measured.items() if math.isnan(value)] == [
    'inference_batch_rows',
    'inference_batch_fill',
    'inference_latency_ms',
  ]
  assert measured['inference_batches_per_second'] == measured['inference_busy_share'] == 0.0
