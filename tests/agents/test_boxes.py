"""Bounded continuous actions as fractions of their bounds."""

import dm_env.specs
import numpy as np

from agents.boxes import Box


def test_the_bounds_may_be_the_largest_floats():
  largest = np.finfo(np.float32).max
  box = Box(dm_env.specs.BoundedArray((1,), np.float32, -largest, largest))
  np.testing.assert_array_equal(
    box.action(np.float32([[-1.0], [0.0], [1.0]]))[:, 0], [-largest, 0, largest]
  )
  np.testing.assert_array_equal(box.fraction(np.float32([[largest]])), [[1.0]])


def test_fractions_are_of_the_bounds_and_0_where_these_are_equal():
  box = Box(dm_env.specs.BoundedArray((2,), np.float32, [-2.0, 3.0], [4.0, 3.0]))
  actions = np.float32([[4.0, 3.0], [1.0, 3.0]])
  np.testing.assert_array_equal(box.fraction(actions), [[1.0, 0.0], [0.0, 0.0]])
  np.testing.assert_array_equal(box.action(box.fraction(actions)), actions)
