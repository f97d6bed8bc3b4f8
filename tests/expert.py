"""Recordings of experts: at CartPole, balanced for all 500 steps, and at Pendulum, swung up and held."""

from __future__ import annotations

import numpy as np

from agents.types import LAST
from environments import registry
from rundir import recorded_unrolls

ROWS = 26  # Of an unroll; the last one is the first of the next.
CARTPOLE, PENDULUM = 'cartpole', 'gymnasium:Pendulum-v1'
_WEIGHTS = np.array([0.1, 0.3, 3.0, 1.0])  # Of place, speed, angle and its speed.
_TORQUE = 2.0  # Of Pendulum's motor, at most.
_TOP = 15.0  # The energy of rest at the top, in Pendulum's units: speed**2 / 2 + 15 cos(angle).


def _balance(observation):
  """Returns CartPole's actions, by a linear policy."""
  return (observation @ _WEIGHTS > 0).astype(np.int32)


def _swing_up(observation):
  """Returns Pendulum's torques: they add energy until there is enough for the top, and hold it there."""
  cos, sin, speed = observation.T
  energy = speed**2 / 2 + _TOP * cos
  pumped = _TORQUE * np.tanh(0.1 * (_TOP + 0.5 - energy) * speed)
  # Without a switch, at which a clone would have to be exact.
  near = 1 / (1 + np.exp(-20 * (cos - 0.85)))
  torque = (1 - near) * pumped - near * (8 * sin + 2 * speed)
  return np.clip(torque, -_TORQUE, _TORQUE)[:, None].astype(np.float32)


_POLICIES = {CARTPOLE: _balance, PENDULUM: _swing_up}


def record(run_dir, episodes, seed=0, task=CARTPOLE):
  """Records whole episodes as a run with --record_unrolls does; returns the directory and the returns.

  Rows after them, up to the end of an unroll, begin another episode.
  """
  env = registry.make(task, num_envs=1, seed=seed)
  rows, returns = [], [0.0]
  timestep = env.reset()
  while True:
    action = _POLICIES[task](timestep.observation)
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
