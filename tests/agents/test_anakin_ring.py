"""The rings of replay: what is sampled how often, what is overwritten, where priorities go."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.anakin import ring as rings
from agents.types import Timestep, Unroll

NUM_RINGS, SLOTS, NUM_ENVS = 2, 3, 4  # Two environments in each ring.
PER_RING = NUM_ENVS // NUM_RINGS


def numbered(count):
  """Returns unrolls of two rows: that of environment e is number `10 count + e` all over."""
  number = 10 * count + jnp.arange(NUM_ENVS)
  rows = jnp.tile(number[:, None], (1, 2))
  return Unroll(
    Timestep(rows.astype(jnp.uint8), 0.5 * rows, rows, jnp.tile(rows[..., None], (1, 1, 3))),
    rows,
    {'extra': rows},
    rows,
    {'core': jnp.tile(number[:, None], (1, 5))},
    jnp.arange(NUM_ENVS),
  )


@functools.cache
def filled(num_inserts, num_incomplete=0):
  """Returns rings after some inserts; the weight of an unroll is its number plus one."""
  ring = rings.empty(numbered(0), NUM_RINGS, SLOTS, num_incomplete, jax.random.key(0))
  for count in range(num_inserts):
    unrolls = numbered(count)
    ring = jax.jit(rings.insert)(ring, unrolls, unrolls.action[:, 0] + 1.0)
  return ring


def numbers(ring):
  """Returns the numbers of the unrolls `[R, S, E]`, after asserting that every field agrees."""
  found = np.asarray(ring.unrolls.action[..., 0])
  for leaf in jax.tree.leaves(ring.unrolls._replace(environment_id=found)):
    leaf = np.asarray(leaf, np.float64).reshape(*found.shape, -1)
    assert (leaf == found[..., None]).all() or (2 * leaf == found[..., None]).all()
  return found


def test_unrolls_are_chosen_in_proportion_to_their_weights():
  weights = jnp.asarray([0.5, 3.0, 0.25, 8.0, 1.25, 0.0, 0.0])
  steps = 13 * 64
  uniform = (jnp.arange(steps) + 0.5) / steps
  place, probabilities = jax.jit(rings.choose)(weights, uniform, jnp.int32(5))
  exact = np.asarray(weights) / 13
  np.testing.assert_array_equal(np.bincount(place, minlength=7), exact * steps)
  np.testing.assert_allclose(probabilities, exact[np.asarray(place)], rtol=1e-6)


def test_rounding_never_chooses_an_empty_slot():
  weights = jnp.where(jnp.arange(10_000) < 9_000, 0.1, 0.0)
  place, probabilities = jax.jit(rings.choose)(weights, jnp.float32([0.0, 1.0]), jnp.int32(9_000))
  assert place.tolist() == [0, 8_999]
  np.testing.assert_allclose(probabilities, 1 / 9_000, rtol=1e-4)


def test_a_new_unroll_of_each_environment_replaces_its_oldest():
  assert numbers(filled(2))[:, :, 0].tolist() == [[0, 10, 0], [2, 12, 0]]
  assert filled(2).weights[0, 2].tolist() == [0, 0]
  after = filled(5)  # Inserts 0 .. 4 in slots 0, 1, 2, 0, 1.
  assert numbers(after).tolist() == [
    [[30, 31], [40, 41], [20, 21]],
    [[32, 33], [42, 43], [22, 23]],
  ]
  np.testing.assert_array_equal(after.weights, numbers(after) + 1)
  assert after.unrolls.environment_id[:, 0].tolist() == [[0, 1], [2, 3]]


@pytest.mark.slow
def test_a_ring_goes_on_where_a_count_of_all_unrolls_would_overflow():
  """The rings of a run whose count is that of an earlier version, and of one from its beginning."""
  most = 2**31 - 2
  assert most % SLOTS == 0
  old, new = filled(6)._replace(count=jnp.int32(most)), filled(6)
  for count in range(6, 14):
    unrolls = numbered(count)
    old, new = (jax.jit(rings.insert)(r, unrolls, unrolls.action[:, 0] + 1.0) for r in (old, new))
    np.testing.assert_array_equal(numbers(old), numbers(new))
    assert SLOTS <= int(old.count) <= 2 * SLOTS
    for ring in (old, new):
      _, sample = rings.sample(ring, 50)
      assert sample.place.min() >= 0 and sample.probabilities.min() > 0


def test_an_incomplete_unroll_is_replaced_by_the_next():
  ring = filled(4, num_incomplete=2)
  assert ring.count == 2
  assert numbers(ring)[0].tolist() == [[20, 21], [30, 31], [0, 0]]
  assert filled(2, num_incomplete=2).count == 0
  assert numbers(filled(3, num_incomplete=2))[0, 0].tolist() == [20, 21]


def test_a_sample_has_its_place_and_the_probability_within_its_ring():
  ring = filled(2)
  key, sample = jax.jit(rings.sample, static_argnums=1)(ring, 50)
  number = np.asarray(sample.unrolls.action[:, 0]).reshape(NUM_RINGS, 50)
  weights = np.asarray(ring.weights).reshape(NUM_RINGS, -1)
  place = np.asarray(sample.place)
  for r in range(NUM_RINGS):
    assert set(number[r]) == set(
      numbers(ring)[r, :2].ravel()
    )  # Of its own environments, all of them.
    np.testing.assert_array_equal(number[r], numbers(ring)[r].ravel()[place[r]])
    expected = weights[r][place[r]] / weights[r].sum()
    np.testing.assert_allclose(sample.probabilities.reshape(NUM_RINGS, -1)[r], expected, rtol=1e-6)
  alike = ring._replace(weights=jnp.ones_like(ring.weights))
  same = np.asarray(rings.sample(alike, 50)[1].place)
  assert (same[0] != same[1]).any()  # Each ring has random numbers of its own.
  later = rings.sample(ring._replace(key=key), 50)[1]
  assert (np.asarray(later.place) != place).any()


@pytest.mark.slow
def test_a_shard_of_the_rings_behaves_as_in_all_of_them():
  ring = filled(5)
  key, whole = rings.sample(ring, 6)
  for r in range(NUM_RINGS):
    part = jax.tree.map(lambda x, r=r: x[r : r + 1], ring._replace(count=None))
    part_key, half = rings.sample(part._replace(count=ring.count), 6)
    np.testing.assert_array_equal(part_key[0], key[r])
    rows = slice(6 * r, 6 * r + 6)
    jax.tree.map(
      lambda a, b, rows=rows: np.testing.assert_array_equal(a, b[rows]),
      (half.unrolls, half.probabilities),
      (whole.unrolls, whole.probabilities),
    )


@pytest.mark.parametrize('order', [1, -1])
def test_priorities_reach_their_slots_and_the_largest_stays(order):
  weights = filled(5).weights
  place = jnp.asarray([[5, 0, 5], [3, 2, 3]])[:, ::order]
  new = jnp.asarray([[0.5, 2.0, 0.25], [0.125, 4.0, 1.0]])[:, ::order].ravel()
  found = np.asarray(jax.jit(rings.reweigh)(weights, place, new)).reshape(NUM_RINGS, -1)
  expected = np.array(weights).reshape(NUM_RINGS, -1)
  expected[0, [0, 5]] = 2.0, 0.5
  expected[1, [2, 3]] = 4.0, 1.0
  np.testing.assert_array_equal(found, expected)
