"""Unrolls whose every value tells their number."""

import jax
import numpy as np

from agents.types import Timestep, Unroll
from nodes.unrolls.packing import Columns

L = 3


def numbered_unrolls(first, count):
  """Unrolls numbered from `first`, fields `[count, L, ...]`."""
  number = np.arange(first, first + count)
  rows = number[:, None] * 10 + np.arange(L)
  return Unroll(
    timestep=Timestep(
      step_type=(rows % 3).astype(np.uint8),
      reward=rows.astype(np.float32),
      discount=np.ones((count, L), np.float32),
      observation=np.broadcast_to(rows[..., None, None] % 256, (count, L, 4, 2)).astype(np.uint8),
    ),
    action=rows.astype(np.int32),
    extras={'logits': np.stack([rows, -rows], axis=-1).astype(np.float32)},
    policy_version=rows.astype(np.int32),
    core_state={'lstm': (number[:, None] * np.ones((1, 5), np.float32), number.astype(np.float32))},
    environment_id=number.astype(np.int32),
  )


EXAMPLE = jax.tree.map(lambda x: x[0], numbered_unrolls(0, 1))
COLUMNS = Columns(EXAMPLE)
