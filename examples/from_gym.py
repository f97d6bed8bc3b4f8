"""Environments of Gym, whose last release needs NumPy 1: for an interpreter with packages of its own."""

import dm_env
import gym
import numpy as np
from dm_env import specs

from environments.dm import DmEnvBatch
from environments.seeding import spawn


class FromGym(dm_env.Environment):
  def __init__(self, task, seed):
    self._env, self._seed, self._over = gym.make(task, disable_env_checker=True), seed, True

  def reset(self):
    view, _ = self._env.reset(seed=self._seed)
    self._seed, self._over = None, False
    return dm_env.restart(np.asarray(view, np.float32))

  def step(self, action):
    if self._over:
      return self.reset()
    view, reward, terminated, truncated, _ = self._env.step(int(action))
    self._over = terminated or truncated
    end = dm_env.truncation if truncated else dm_env.transition
    return (dm_env.termination if terminated else end)(float(reward), np.asarray(view, np.float32))

  def observation_spec(self):
    return specs.Array(self._env.observation_space.shape, np.float32)

  def action_spec(self):
    return specs.DiscreteArray(int(self._env.action_space.n))


def make(task, num_envs, seed):
  return DmEnvBatch([FromGym(task, s) for s in spawn(seed, num_envs)])
