"""What plays the episodes of pairs of policies, for each kind of environment."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable
from typing import Any

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from agents import shapes
from agents.anakin.environment import JaxEnvironment, evaluated
from agents.evolution import playing, strategy
from agents.evolution.agent import Evolution
from agents.types import Array, Nest, Timestep
from environments.base import BatchedEnvironment, describe
from nodes.evolution.dispatch import Played
from nodes.runtime import activity, lifecycle


class Episodes(abc.ABC):
  """Plays one episode with each policy of some pairs.

  The result depends on the parameters and the seeds alone, not on what was played before.

  Attributes:
    agent: has the policies.
    action_repeat: environment frames per step.
  """

  agent: Evolution
  action_repeat = 1

  @abc.abstractmethod
  def play(self, vector: np.ndarray, seeds: np.ndarray, should_stop: Callable[[], bool]) -> Played:
    """Returns raw returns, float32 `[P, 2]`, lengths in steps, int32 `[P, 2]`, and statistics.

    Those are of all observations, float32 `[S]`, as `Evolution.pooled` returns them.

    Args:
      vector: the parameters, float32 `[D]`.
      seeds: of the pairs, uint32 `[P, K]`.
      should_stop: polled while it plays, if that is possible.

    Raises:
      lifecycle.Stopped: once `should_stop` returns True.
    """

  def _policies(self, vector: Array, seeds: Array) -> Nest:
    """Returns the parameters of the policies, `[2P, ...]` per leaf."""
    vectors = self.agent.perturbed(vector, seeds)
    unflatten = self.agent.unflatten(shapes.params(self.agent))
    return jax.vmap(unflatten)(vectors.reshape(-1, vector.shape[0]))


class CompiledEpisodes(Episodes):
  """Environments written in JAX: policies, environments and all steps are one compiled function."""

  def __init__(
    self,
    make_agent: Callable[..., Evolution],
    make_environment: Callable[[], JaxEnvironment],
    max_steps: int,
  ):
    """Makes the environment; nothing is compiled yet.

    Args:
      make_agent: builds the agent from the specs of observations and actions.
      make_environment: builds one environment.
      max_steps: after which an episode counts with its return so far.
    """
    environment = evaluated(make_environment())  # In self-play a return is of both players.
    self.agent = make_agent(environment.observation_spec, environment.action_spec)

    def play(vector: Array, seeds: Array) -> tuple[Array, Array, Array]:
      keys = jnp.repeat(jax.vmap(strategy.episode_key)(seeds), 2)
      params = self._policies(vector, seeds)
      *played, seen = playing.play(self.agent, environment, params, keys, max_steps)
      returns, lengths = (x.reshape(-1, 2) for x in played)
      return returns, lengths, self.agent.pooled(seen)

    self._play = jax.jit(play)

  def play(self, vector: np.ndarray, seeds: np.ndarray, should_stop: Callable[[], bool]) -> Played:
    """Plays all episodes in one call, which does not stop before its end. See the base class."""
    del should_stop
    with activity.doing(activity.COMPILED_LOOP):
      played: Played = jax.device_get(self._play(vector, seeds))
      return played


class SteppedEpisodes(Episodes):
  """Environments of `environments.registry`: a batch of them is made for each call, from its seeds."""

  def __init__(
    self,
    make_agent: Callable[..., Evolution],
    make_environment: Callable[[int, int], BatchedEnvironment],
    max_steps: int,
  ):
    """Makes an environment for its specs; the arguments are those of `CompiledEpisodes`.

    Args:
      make_agent: builds the agent from the specs of observations and actions.
      make_environment: takes (number of environments, seed).
      max_steps: see above.
    """
    spec, self.action_repeat = describe(make_environment)
    self.agent = make_agent(spec.observations, spec.actions)
    self._make_environment, self._max_steps = make_environment, max_steps
    self._make_policies = jax.jit(self._policies)
    self._act, self._pooled = jax.jit(jax.vmap(self._act_and_see)), jax.jit(self.agent.pooled)

  def play(self, vector: np.ndarray, seeds: np.ndarray, should_stop: Callable[[], bool]) -> Played:
    """Steps the environments until all episodes are over. See the base class."""
    activity.mark(activity.PLAYING)
    policies = self._make_policies(vector, seeds)
    count = 2 * len(seeds)
    new = self.agent.initial_core_state(1), self.agent.nothing_seen()
    memory = jax.tree.map(lambda x: jnp.tile(x, (count, *[1] * x.ndim)), new)
    keys = jax.random.split(jax.random.key(0), count)
    returns, lengths = np.zeros(count, np.float32), np.zeros(count, np.int32)
    over = np.zeros(count, bool)
    seed = int(seeds[0][0]) >> 1  # Below 2**31, as every library takes it.
    with contextlib.closing(self._make_environment(count, seed)) as environment:
      timestep = environment.reset()
      while not over.all() and lengths.max() < self._max_steps:
        activity.mark(activity.PLAYING)
        if should_stop():
          raise lifecycle.Stopped
        action, memory = self._act(policies, memory, Timestep(*timestep), keys, over)
        timestep = environment.step(np.asarray(action))
        returns += np.where(over, 0.0, timestep.reward).astype(np.float32)
        lengths += ~(over | timestep.first())  # A life that was lost begins with a FIRST row.
        over |= _game_over(environment, timestep)
    seen = np.asarray(self._pooled(memory[1]))
    return returns.reshape(-1, 2), lengths.reshape(-1, 2), seen

  def _act_and_see(
    self, params: Nest, memory: tuple[Nest, Nest], timestep: Timestep, key: Array, over: Array
  ) -> tuple[Array, tuple[Nest, Nest]]:
    """Returns an action, and the core state and statistics, which stay once the episode is over."""
    core_state, seen = memory
    action, core_state = playing.act(self.agent, params, core_state, timestep, key)
    after = core_state, self.agent.having_seen(seen, timestep.observation)
    return action, jax.tree.map(lambda old, new: jnp.where(over, old, new), memory, after)


def _game_over(environment: BatchedEnvironment, timestep: dm_env.TimeStep) -> Any:
  """Returns which games have ended: an episode may be shorter, such as a life."""
  if environment.game_over is not None:
    return environment.game_over
  return timestep.step_type == dm_env.StepType.LAST
