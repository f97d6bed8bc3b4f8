"""Jumanji's environments for Anakin, such as --env=examples/from_jumanji.py:make:Maze-v0."""

import jax
import jumanji
from dm_env.specs import DiscreteArray
from jumanji.specs import jumanji_specs_to_dm_env_specs as as_dm_env

from agents.anakin.environment import begin_episode, transition


class Jumanji:
  def __init__(self, env):
    self._env = env
    self.observation_spec = jax.tree.map(_spec, as_dm_env(env.observation_spec))
    self.action_spec = DiscreteArray(int(env.action_spec.num_values))

  def reset(self, key):
    state, timestep = self._env.reset(key)
    return state, begin_episode(_as_dict(timestep.observation))

  def step(self, state, action, key):
    state, timestep = self._env.step(state, action)
    end, terminal = timestep.last(), timestep.discount == 0
    observation = _as_dict(timestep.observation)
    return state, transition(observation, timestep.reward, end & terminal, end & ~terminal)


def _spec(spec):  # A whole number with bounds is a label, which networks see one-hot.
  is_label = not spec.shape and spec.dtype == 'int32' and hasattr(spec, 'maximum')
  return DiscreteArray(int(spec.maximum) + 1) if is_label else spec


def _as_dict(observation):  # Its entry action_mask says which actions are legal.
  if not hasattr(observation, '_asdict'):
    return observation
  return {name: _as_dict(part) for name, part in observation._asdict().items()}


def make(task):
  return Jumanji(jumanji.make(task))
