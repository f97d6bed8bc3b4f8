"""Derives a seed for each environment from the seed of a batch."""

from __future__ import annotations

import numpy as np


def spawn(seed: int, num_envs: int) -> list[int]:
  """Returns `num_envs` seeds in [0, 2**31), hashed so that nearby batch seeds share none of them.

  With consecutive seeds, environment 1 of batch `seed` would equal environment 0 of batch `seed + 1`.
  The seed of environment `i` does not depend on `num_envs`.

  Args:
    seed: the seed of the batch, at least 0.
    num_envs: N.

  Raises:
    ValueError: the seed is negative.
  """
  state = np.random.SeedSequence(seed).generate_state(num_envs)
  return [int(word) for word in state & np.uint32(2**31 - 1)]
