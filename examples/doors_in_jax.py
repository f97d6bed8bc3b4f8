"""The doors of doors.py in JAX, for Anakin: one door is right, and a mask tells which are open."""

from dm_env.specs import Array, DiscreteArray
from jax import numpy as jnp
from jax import random

from agents.anakin.environment import begin_episode, transition


class Doors:
  action_spec = DiscreteArray(4)
  observation_spec = {
    'colour': DiscreteArray(4),
    'sign': Array((), 'float32'),
    'action_mask': Array((4,), bool),
  }

  def __init__(self, rooms):
    self._rooms = rooms

  def reset(self, key):
    room = self._enter(key)
    return (jnp.int32(self._rooms), room), begin_episode(room)

  def step(self, state, action, key):
    (left, room), after = state, self._enter(key)
    right = jnp.where(room['sign'] > 0, room['colour'], 3 - room['colour'])
    reward = jnp.where(room['action_mask'][action], action == right, -100.0)  # The door is closed.
    return (left - 1, after), transition(after, reward, left == 1)

  def _enter(self, key):  # The door of the colour is right, or its opposite if the sign is -1.
    keys = random.split(key, 3)
    colour, sign = random.randint(keys[0], (), 0, 4), random.rademacher(keys[1], (), 'float32')
    right = jnp.where(sign > 0, colour, 3 - colour)
    opened = (random.uniform(keys[2], (4,)) < 0.6) | (jnp.arange(4) == right)
    return {'colour': colour, 'sign': sign, 'action_mask': opened}


def make(task, *, rooms=5):
  return Doors(rooms)
