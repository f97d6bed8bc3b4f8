"""The aggregates: interquartile means and stratified bootstrap intervals."""

import itertools

import numpy as np
import pytest
from scipy import stats

from sweeps import bootstrap


@pytest.mark.parametrize('runs', [1, 3, 4, 5, 10, 17])
def test_the_interquartile_mean_is_the_mean_without_a_quarter_at_each_end(runs):
  scores = np.random.default_rng(runs).normal(size=(6, runs))
  expected = stats.trim_mean(scores, 0.25, axis=1)
  np.testing.assert_allclose(bootstrap.interquartile_mean(scores), expected, rtol=1e-12)


def test_outliers_do_not_move_the_interquartile_mean():
  scores = np.array([[3.0, 1e9, 4.0, 5.0, -1e9, 6.0, 2.0, 7.0]])
  assert bootstrap.interquartile_mean(scores) == pytest.approx([4.5])


@pytest.mark.parametrize('scores', [[0.0, 1.0, 3.0, 10.0], [0.0, 1.0, 2.0, 4.0, 8.0]])
def test_an_interval_is_that_of_all_resamples(scores):
  every = [np.mean(draw) for draw in itertools.product(scores, repeat=len(scores))]
  made = bootstrap.estimate([np.array(scores)])
  assert made.value == np.mean(scores)
  # The draws are a sample of the resamples, but these percentiles lie within wide steps.
  np.testing.assert_allclose(made.interval, np.percentile(every, [2.5, 97.5]), rtol=1e-12)


def test_the_draws_have_a_fixed_seed():
  tasks = [np.array([0.0, 1.0, 2.0, 4.0, 8.0]), np.array([1.5, 3.25, 0.125])]
  made = bootstrap.estimate(tasks, bootstrap.interquartile_mean)
  assert made.value == (1.0 + 1.5 + 2.0 + 3.25) / 4
  np.testing.assert_allclose(made.interval, (0.5625, 3.878125), rtol=1e-12)


def test_runs_are_resampled_within_their_task():
  tasks = [np.array([1.0, 1.0, 1.0]), np.array([9.0, 9.0])]
  made = bootstrap.estimate(tasks)
  assert made.value == pytest.approx(21 / 5)
  assert made.interval == (pytest.approx(21 / 5), pytest.approx(21 / 5))


def test_equal_scores_give_equal_intervals_and_points_are_resampled_together():
  curves = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])
  first, second = (bootstrap.estimate([curves]) for _ in range(2))
  for a, b in zip(first.interval, second.interval, strict=True):
    np.testing.assert_array_equal(a, b)
  low, high = first.interval
  # The two points of a curve add up to 1, and so do their resampled means.
  assert low[0] == pytest.approx(1 - high[1]) and low.shape == (2,)


def test_a_single_run_has_no_interval():
  assert bootstrap.estimate([np.array([3.0]), np.array([5.0])]) == (4.0, None)
  # Nothing is known of the spread of the first task.
  assert bootstrap.estimate([np.array([1.0]), np.array([4.0, 4.0])]) == (3.0, None)
