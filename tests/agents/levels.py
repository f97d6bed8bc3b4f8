"""An environment whose reset is expensive, and whose state is what pytrees may be."""

import dataclasses

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np

from agents.anakin.environment import begin_episode, transition


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Level:
  """A walk of random length; flax does not know the class."""

  key: jax.Array  # Typed; each step draws the observation from it.
  steps: list  # Two int32 `[]`: done, and of the episode.
  nothing: None = None


class Levels:
  """Episodes of 2 to 9 steps. A reset computes some thousand times what a step does."""

  observation_spec = dm_env.specs.Array((3,), np.float32, 'observation')
  action_spec = dm_env.specs.DiscreteArray(3, np.int32, 'action')

  def __init__(self, begun=None):
    """`begun`, if any, is called in every reset that is computed, with its first observation."""
    self._begun = begun

  def reset(self, key):
    if self._begun:
      jax.debug.callback(self._begun, jax.random.uniform(key, (3,)))
    dug, _ = jax.lax.scan(lambda x, _: (jnp.sin(x) + 0.1, None), jnp.zeros(8), length=1000)
    length = jax.random.randint(key, (), 2, 10) + (dug.sum() > 1e9)
    observation = jax.random.uniform(key, (3,))
    return Level(key, [jnp.int32(0), length]), begin_episode(observation)

  def step(self, state, action, key):
    done, length = state.steps
    observation = jax.random.uniform(state.key, (3,)) + action + jax.random.uniform(key)
    later = Level(jax.random.split(state.key, 1)[0], [done + 1, length])
    return later, transition(observation, observation.sum(), done + 1 >= length)


class Returning(Levels):
  """Takes the length of the next episode from that of the last one."""

  def restart(self, state, key):
    later, timestep = self.reset(key)
    return dataclasses.replace(later, steps=[jnp.int32(0), state.steps[1] % 7 + 2]), timestep
