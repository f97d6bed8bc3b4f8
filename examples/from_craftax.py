"""Craftax for Anakin, such as --env=from_craftax.py:make:Craftax-Classic-Symbolic-v1."""

from craftax.craftax_env import make_craftax_env_from_name
from dm_env.specs import Array, DiscreteArray

from agents.anakin.environment import begin_episode, transition


class Craftax:
  def __init__(self, env):
    self._env, self._params = env, env.default_params
    space = env.observation_space(self._params)
    self.observation_spec = Array(space.shape, space.dtype)
    self.action_spec = DiscreteArray(env.num_actions)

  def reset(self, key):
    observation, state = self._env.reset_env(key, self._params)
    return state, begin_episode(observation)

  def step(self, state, action, key):
    observation, state, reward, done, _ = self._env.step_env(key, state, action, self._params)
    cut = state.timestep >= self._params.max_timesteps
    return state, transition(observation, reward, done & ~cut, cut)


def make(task):
  return Craftax(make_craftax_env_from_name(task, auto_reset=False))
