"""A policy that runs an agent in this process."""

from __future__ import annotations

from collections.abc import Callable

import dm_env
import jax
import numpy as np

from agents.agent import Agent
from agents.seeding import Seed
from agents.types import Array, Nest, Timestep


def acting(agent: Agent) -> Callable[..., tuple[Array, Nest]]:
  """Returns a pure function of one step, of which each draws other random numbers.

  It takes the arguments of `agent.act` and the number of steps before this one, int32 `[]`. It returns
  the actions and the next core state.
  """

  def act(
    params: Nest,
    core_state: Nest,
    timestep: Timestep,
    exploration: Array,
    keys: Array,
    count: Array,
  ) -> tuple[Array, Nest]:
    now = jax.vmap(lambda key: jax.random.fold_in(key, count))(keys)
    output = agent.act(params, core_state, timestep, exploration, now)
    return output.action, output.core_state

  return act


class LocalPolicy:
  """Acts with given parameters; a `nodes.evaluation.episodes.Policy`.

  Attributes:
    exploration: of each environment, float32 `[N]`.
  """

  def __init__(self, agent: Agent, params: Nest, num_envs: int, seed: Seed, sample: bool = False):
    """Initialises the core states.

    Args:
      agent: the acting agent.
      params: its parameters.
      num_envs: N, the batch size.
      seed: seed of action sampling.
      sample: whether to act with the exploration of training, not with that of evaluation.
    """
    greedy = np.full(num_envs, agent.evaluation_exploration, np.float32)
    self.exploration = agent.exploration(num_envs) if sample else greedy
    self._params = params
    self._core_state = agent.initial_core_state(num_envs)
    self._keys = jax.random.split(seed.child('actions').key(), num_envs)
    self._count = 0
    self._action: Array = None
    self._act = jax.jit(acting(agent))

  def send(self, timestep: dm_env.TimeStep) -> None:
    """Acts on the timesteps `[N]`."""
    inputs = Timestep(*timestep), self.exploration, self._keys, self._count
    self._action, self._core_state = self._act(self._params, self._core_state, *inputs)
    self._count += 1

  def receive(self) -> np.ndarray:
    """Returns the actions `[N, ...]`."""
    return np.asarray(self._action)
