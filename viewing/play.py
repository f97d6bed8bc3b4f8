"""Acts with the exported policy in this folder. It needs JAX and flatbuffers alone.

python play.py ROWS.npz [SEED [EXPLORATION]]    prints the actions for arrays [T, B, ...] of timesteps

The observation of a nest is the list of its leaves, named in policy.json.
"""

import json
import pathlib
import sys
from typing import Any

import jax
import jax.export
import numpy as np

FOLDER = pathlib.Path(__file__).parent
SPECS = json.loads((FOLDER / 'policy.json').read_text())
ACT = jax.jit(jax.export.deserialize(bytearray((FOLDER / 'policy.bin').read_bytes())).call)


class Policy:
  """Acts in B environments.

  Exploration 0 is greedy; 1 is as in training, or for Q-learning at random (R2D2, PQN, QT-Opt).
  """

  def __init__(self, batch_size: int, seed: int = 0, exploration: float = SPECS['exploration']):
    keys = jax.random.split(jax.random.key(seed, impl=SPECS['key_impl']), batch_size)
    self.fixed = np.full(batch_size, exploration, np.float32), jax.random.key_data(keys)
    self.core_state = [np.zeros((batch_size, *x['shape']), x['dtype']) for x in SPECS['core_state']]
    self.count = 0

  def act(self, step_type: Any, reward: Any, discount: Any, observation: Any) -> np.ndarray:
    """Returns actions [B, ...] for a timestep [B, ...]; step_type 0 begins an episode, 2 ends it."""
    row = step_type, reward, discount, observation
    action, self.core_state = ACT(self.core_state, *row, *self.fixed, np.int32(self.count))
    self.count += 1
    return np.asarray(action)


if __name__ == '__main__':
  arrays = np.load(sys.argv[1])
  leaves = [name for name in SPECS['observation'] if '/' in name]
  names = 'step_type', 'reward', 'discount', *(leaves or ['observation'])
  rows = [arrays[name] for name in names]
  policy = Policy(rows[0].shape[1], *map(json.loads, sys.argv[2:]))
  for step_type, reward, discount, *seen in zip(*rows, strict=True):
    print(policy.act(step_type, reward, discount, seen if leaves else seen[0]).tolist())
