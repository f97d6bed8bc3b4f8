"""Running statistics against NumPy in float64, and normalisation by them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from agents.networks import statistics

merged = jax.jit(statistics.merged)


def of_batches(batches):
  found = statistics.initial(batches[0].shape[2:])
  for batch in batches:
    found = merged(found, batch)
  return found


def test_many_batches_have_the_mean_and_variance_of_all_their_values():
  rng = np.random.default_rng(0)
  offset, scale = np.array([0.0, 5e3, -2.0, 0.0]), np.array([1.0, 3.0, 1e-2, 1e4])
  # The distribution moves, so the variance between batches matters too.
  batches = [
    (offset + scale * (rng.normal(size=(8, 5 + i % 3, 4)) + i / 100)).astype(np.float32)
    for i in range(300)
  ]
  rows = np.concatenate([batch.reshape(-1, 4) for batch in batches]).astype(np.float64)
  found = of_batches(batches)
  assert found['count'] == len(rows)
  np.testing.assert_allclose(found['mean'], rows.mean(0), atol=1e-4 * rows.std(0).max(0), rtol=1e-6)
  np.testing.assert_allclose(statistics.standard_deviation(found), rows.std(0), rtol=1e-3)
  np.testing.assert_allclose(
    statistics.normalized(found, batches[0]),
    (batches[0] - rows.mean(0)) / rows.std(0),
    atol=1e-2,
  )


def test_the_first_values_may_lie_close_together():
  values = (1e-4 * np.random.default_rng(0).normal(size=(64, 8, 1))).astype(np.float32)
  found = merged(statistics.initial((1,)), values)
  np.testing.assert_allclose(np.sqrt(found['variance']), values.std(), rtol=1e-3)


def test_values_that_are_not_valid_do_not_count():
  values = np.array([[1.0, np.nan, 3.0], [np.inf, 5.0, 7.0]], np.float32)
  valid = np.isfinite(values)
  found = merged(statistics.initial(()), values, valid)
  assert (found['count'], found['mean'], found['variance']) == (4.0, 4.0, 5.0)
  same = merged(found, values, np.zeros_like(valid))
  jax.tree.map(np.testing.assert_array_equal, same, found)
  nothing = merged(statistics.initial(()), values, np.zeros_like(valid))
  jax.tree.map(np.testing.assert_array_equal, nothing, statistics.initial(()))


def test_a_constant_is_normalised_to_zero_and_what_differs_from_it_is_clipped():
  constants = np.array([0.0, 0.1, -1234.567], np.float32)
  found = of_batches([np.tile(constants, (7, 11, 1))] * 50)
  np.testing.assert_allclose(statistics.normalized(found, constants[None, None]), 0.0, atol=1e-3)
  other = statistics.normalized(found, (constants + 1.0)[None, None])
  np.testing.assert_array_equal(other[0, 0], statistics.LIMIT)


def test_without_values_observations_stay_as_they_are_up_to_the_limit():
  x = np.array([[[-1e3, -9.0, 0.0, 0.1, 9.0, 1e3]]], np.float32)
  expected = [-10.0, -9.0, 0.0, np.float32(0.1), 9.0, 10.0]
  np.testing.assert_array_equal(statistics.normalized(statistics.initial((6,)), x)[0, 0], expected)


def test_stacked_frames_are_normalised_alike():
  rng = np.random.default_rng(0)
  frames = rng.normal(3.0, 2.0, size=(5, 4, 2, 3)).astype(np.float32)
  found = of_batches([frames])
  stacked = np.stack([frames, np.zeros_like(frames)], axis=-1)
  result = statistics.normalized(found, stacked)
  np.testing.assert_array_equal(result[..., 0], statistics.normalized(found, frames))
  np.testing.assert_array_equal(result[..., 1], statistics.normalized(found, np.zeros_like(frames)))


def test_after_very_many_values_the_statistics_still_follow_new_ones():
  full = {
    'count': jnp.float32(statistics.MAX_COUNT),
    'mean': jnp.float32(1.0),
    'variance': jnp.float32(1.0),
  }
  found, batch = full, jnp.full((16, 20), 2.0)
  for _ in range(3):
    found = merged(found, batch)
  assert found['count'] == statistics.MAX_COUNT
  # Each step moves the mean by 320 / 1e8 of the difference.
  np.testing.assert_allclose(found['mean'] - 1.0, 3 * 320 / statistics.MAX_COUNT, rtol=0.05)


def test_bytes_and_truth_values_are_counted_as_numbers():
  found = merged(statistics.initial(()), np.array([[True, False, True, True]]))
  assert (found['mean'], found['variance']) == (0.75, 0.1875)
