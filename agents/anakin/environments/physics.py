"""What the suites of simulated physics share: Brax and MuJoCo Playground have the same interface."""

from __future__ import annotations

from typing import Any

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np

from agents.anakin.environments.suite import Moved, SuiteEnvironment
from agents.types import Array


class Physics(SuiteEnvironment):
  """One environment. Actions are float32 in [-1, 1].

  A simulation that diverges ends the episode in a terminal state, and its last row has zeros in place of
  what is not finite.
  """

  def __init__(self, name: str, environment: Any, max_episode_steps: int):
    """Wraps an environment that neither resets itself nor has a time limit; arguments as in the base."""
    self._environment = environment
    size = (int(environment.action_size),)
    actions = dm_env.specs.BoundedArray(size, np.float32, -1.0, 1.0, 'action')
    super().__init__(name, actions, max_episode_steps)

  def _begin(self, key: Array) -> tuple[Any, Any]:
    state = self._environment.reset(key)
    return state, state.obs

  def _move(self, state: Any, action: Array, key: Array) -> Moved:
    del key  # The state has one of its own.
    state = self._environment.step(state, action)
    finite = jnp.stack([jnp.isfinite(x).all() for x in jax.tree.leaves((state.obs, state.reward))])
    observation, reward = jax.tree.map(
      lambda x: jnp.where(jnp.isfinite(x), x, 0.0), (state.obs, state.reward)
    )
    return Moved(state, observation, reward, (state.done > 0) | ~finite.all())
