"""How the tests of MinAtar play its games."""

from __future__ import annotations

import numpy as np

TASKS = ['Asterix', 'Breakout', 'Freeway', 'Seaquest', 'SpaceInvaders']
NOOP, EXITED_EARLY, UP, RIGHT, DOWN, FIRE = range(6)


def scripted(task, observation):
  """Returns int32 `[N]`: for each bool `[N, 10, 10, C]` an action that keeps the game going."""
  index = np.arange(len(observation))
  player = observation[..., 0].reshape(len(observation), -1).argmax(1)
  y, x = player // 10, player % 10
  action = np.full(len(observation), NOOP, np.int32)
  if task == 'Freeway':
    action[:] = UP
  if task == 'Asterix':
    danger = observation[index, y, :, 1].any(1)
    action = np.where(danger, np.where(y > 1, UP, DOWN), NOOP)
  if task == 'Breakout':
    ball, trail = (observation[..., c].any(1).argmax(1) for c in (1, 2))
    target = np.clip(2 * ball - trail, 0, 9)
    action = np.where(target < x, EXITED_EARLY, np.where(target > x, RIGHT, NOOP))
  if task == 'SpaceInvaders':
    aliens = observation[..., 1].any(1)
    centre = (aliens * np.arange(10)).sum(1) / np.maximum(aliens.sum(1), 1)
    action = np.where(aliens[index, x], FIRE, np.where(centre < x, EXITED_EARLY, RIGHT))
  if task == 'Seaquest':
    oxygen, divers = (observation[:, 9, :, c].sum(1) for c in (7, 8))
    action = np.where(y < 4, DOWN, np.where(oxygen % 2, FIRE, RIGHT))
    action = np.where((divers > 0) & (oxygen < 8), UP, action)
  return action.astype(np.int32)


def mixed(task, observation, rng, random):
  """Returns scripted actions, each replaced by a uniformly random one with probability `random`."""
  uniform = rng.integers(6, size=len(observation)).astype(np.int32)
  return np.where(rng.random(len(observation)) < random, uniform, scripted(task, observation))


def episodes(batch, policy, episodes_each):
  """Returns returns and lengths `[N, episodes_each]` of the first episodes of every environment.

  Args:
    batch: a `BatchedEnvironment`.
    policy: from observations `[N, ...]` to actions `[N]`.
    episodes_each: episodes of each of the N.
  """
  returns = np.zeros((batch.num_envs, episodes_each))
  lengths = np.zeros((batch.num_envs, episodes_each), int)
  finished = np.zeros(batch.num_envs, int)
  row = batch.reset()
  while (finished < episodes_each).any():
    row = batch.step(policy(row.observation))
    playing = np.flatnonzero(finished < episodes_each)
    returns[playing, finished[playing]] += row.reward[playing]
    lengths[playing, finished[playing]] += ~row.first()[playing]
    finished += row.last()
  return returns, lengths
