"""The search of QT-Opt against functions whose maximum is known."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.qt_opt import cem

PAPER = {'num_samples': 64, 'num_elites': 6, 'num_iterations': 2, 'min_std': 0.01}
TRIALS = 500


def errors(num_dimensions, optima, **options):
  """Returns the largest distance in a dimension from the optimum of a quadratic, of each trial."""

  def error(key, optimum):
    found = cem.maximise(
      lambda x: -jnp.sum(jnp.square(x - optimum), axis=-1),
      key,
      num_dimensions,
      **PAPER | options,
    )
    return jnp.max(jnp.abs(found - optimum))

  keys = jax.random.split(jax.random.key(0), TRIALS)
  return np.asarray(jax.jit(jax.vmap(error))(keys, optima))


@pytest.mark.slow
@pytest.mark.parametrize(
  ('num_dimensions', 'expected'), [(1, 0.003), (2, 0.031), (4, 0.13), (7, 0.3)]
)
def test_the_papers_sizes_find_the_optimum_of_a_quadratic(num_dimensions, expected):
  """The errors were computed apart from this code, for the mean of the last elites."""
  optima = jax.random.uniform(jax.random.key(1), (TRIALS, num_dimensions), minval=-1.0)
  assert errors(num_dimensions, optima).mean() < 1.1 * expected
  assert errors(num_dimensions, optima, num_iterations=1).mean() > 1.5 * expected


def test_an_optimum_at_a_bound_or_beyond_it_is_reached():
  for optimum in (1.0, 3.0):
    found = errors(1, jnp.full((TRIALS, 1), -optimum)) - (optimum - 1.0)
    assert np.quantile(found, 0.99) < 0.01


def test_no_iteration_samples_outside_the_bounds_and_the_last_one_is_narrower():
  asked = []

  def score(x):
    jax.debug.callback(lambda x: asked.append(np.asarray(x)), x)
    return jnp.sum(x, axis=-1)

  cem.maximise(score, jax.random.key(0), 3, **PAPER)
  jax.effects_barrier()
  first, second, candidates = sorted(asked, key=len, reverse=True)
  assert [x.shape for x in asked] == [(64, 3), (64, 3), (2, 3)]
  assert all(np.abs(x).max() <= 1.0 for x in asked)
  assert second.mean() > first.mean() + 0.5
  assert candidates.shape == (2, 3)


def test_between_two_optima_a_sample_is_returned():
  """The mean of the elites would be 0, where the score is the lowest."""

  def found(key):
    return cem.maximise(lambda x: jnp.abs(x[:, 0]), key, 1, **PAPER)

  keys = jax.random.split(jax.random.key(0), TRIALS)
  assert np.abs(jax.vmap(found)(keys)).min() > 0.9


def test_equal_elites_do_not_end_the_search():
  """All samples are at a bound at first; the smallest deviation finds the inner optimum beside it."""
  search = functools.partial(cem.maximise, lambda x: -jnp.abs(x[:, 0] - 0.97), num_dimensions=1)
  options = PAPER | {'num_samples': 64, 'num_elites': 1, 'num_iterations': 4}
  keys = jax.random.split(jax.random.key(0), TRIALS)
  wide, none = (
    np.abs(jax.vmap(lambda k, s=s: search(key=k, **options | {'min_std': s}))(keys) - 0.97).mean()
    for s in (0.05, 0.0)
  )
  assert wide < 0.5 * none
