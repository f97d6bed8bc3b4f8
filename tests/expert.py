"""Recordings of an expert at CartPole: a linear policy, which balances for all 500 steps."""

from __future__ import annotations

import numpy as np

from agents.types import LAST
from environments import registry
from rundir import recorded_unrolls

ROWS = 26  # Of an unroll; the last one is the first of the next.
_WEIGHTS = np.array([0.1, 0.3, 3.0, 1.0])  # Of place, speed, angle and its speed.


def record(run_dir, episodes, seed=0):
  """Records whole episodes as a run with --record_unrolls does; returns the directory and the returns.

  Rows after them, up to the end of an unroll, begin another episode.
  """
  env = registry.make('cartpole', num_envs=1, seed=seed)
  rows, returns = [], [0.0]
  timestep = env.reset()
  while True:
    action = (timestep.observation @ _WEIGHTS > 0).astype(np.int32)
    rows.append(
      (timestep.step_type, timestep.reward, timestep.discount, timestep.observation, action)
    )
    returns[-1] += float(timestep.reward[0])
    if timestep.step_type[0] == LAST:
      returns.append(0.0)
    if len(returns) > episodes and len(rows) % (ROWS - 1) == 1:
      break
    timestep = env.step(action)
  env.close()
  names = (
    'timestep/step_type',
    'timestep/reward',
    'timestep/discount',
    'timestep/observation',
    'action',
  )
  starts = np.arange(0, len(rows) - 1, ROWS - 1)
  places = starts[:, None] + np.arange(ROWS)
  columns = {
    name: np.concatenate(column)[places]
    for name, column in zip(names, zip(*rows, strict=True), strict=True)
  }
  columns['timestep/step_type'] = columns['timestep/step_type'].astype(np.uint8)
  columns['unroll_id'] = np.arange(len(starts))
  layout = {name: (column.shape[1:], column.dtype.name) for name, column in columns.items()}
  recorded_unrolls.begin(str(run_dir), recorded_unrolls.Format(ROWS, layout))
  recorded_unrolls.write_chunk(str(run_dir), columns)
  return str(run_dir), returns[:-1]
