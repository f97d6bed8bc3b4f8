"""Evolution strategies as an `Agent`: a policy without a value, which learns from returns alone."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import NamedTuple

import dm_env.specs
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from agents import action_mask, shapes, spaces
from agents.actor_critic.choice import make_distribution
from agents.agent import ActOutput, Agent, UpdateOutput
from agents.evolution import strategy
from agents.evolution.config import EvolutionConfig
from agents.networks import observation_statistics
from agents.networks.recurrent import RecurrentNetwork
from agents.networks.statistics import OBSERVATIONS
from agents.optimizers import Optimizer
from agents.types import Array, Nest, Timestep, Unroll


class EvolutionState(NamedTuple):
  """The learner state of evolution strategies."""

  params: Nest
  opt_state: optax.OptState
  learner_steps: Array  # int32 `[]`, generations done.


class PolicyHead(nn.Module):
  """One linear layer, initially near zero, for the parameters of a policy."""

  num_logits: int

  @nn.compact
  def __call__(self, features: Array) -> Array:
    """Maps float32 `[..., D]` to `[..., num_logits]`."""
    small = nn.initializers.orthogonal(0.01)
    return nn.Dense(self.num_logits, kernel_init=small, name='logits')(features)

  masked = staticmethod(action_mask.masked)


class Evolution(Agent):
  """Evolution strategies (Salimans et al. 2017) with mirrored noise and centred ranks.

  Policies are deterministic: the exploration is in their parameters. A learner step is `evolve`, which
  takes the returns of whole episodes; there are no unrolls.
  """

  Config = EvolutionConfig
  # Of an agent without memory of rows; nothing is learned from them.
  unroll_rows, unroll_period = 2, 1

  def __init__(
    self, config: EvolutionConfig, observation_spec: Nest, action_spec: dm_env.specs.Array
  ) -> None:
    """Initialises the network and the optimizer; the arguments are those of other agents.

    Raises:
      ValueError: the config is unusable, or no agent takes the observations or actions.
    """
    config.validate()
    spaces.check_normalization(config, observation_spec)
    self._config, self._observation_spec = config, observation_spec
    self._distribution = make_distribution(action_spec, 'free')
    # A standard deviation that no state changes is not used, and is no parameter.
    self._unused = self._distribution.num_free
    head = PolicyHead(self._distribution.num_logits - self._unused)
    self.network = RecurrentNetwork(config, observation_spec, action_spec, head)
    self._optimizer = Optimizer(config)

  def init(self, key: Array) -> EvolutionState:
    """Returns a new learner state."""
    weights = self.network.init(key)
    opt_state, none = self._optimizer.init(weights), jnp.zeros((), jnp.int32)
    statistics = self.nothing_seen()
    params = weights | {OBSERVATIONS: statistics} if statistics else weights
    return EvolutionState(params, opt_state, none)

  def initial_core_state(self, batch_size: int) -> Nest:
    """Returns the core state at the start of an episode, `{}` without core and frame stack."""
    return self.network.initial_core_state(batch_size)

  def exploration(self, num_environments: int) -> np.ndarray:
    """Returns zeros: the policy is deterministic."""
    return np.zeros((num_environments,), np.float32)

  def act(
    self, params: Nest, core_state: Nest, timestep: Timestep, exploration: Array, keys: Array
  ) -> ActOutput:
    """Takes the most likely discrete actions, or the continuous ones that the network outputs."""
    del exploration, keys
    logits, core_state = self.network.step(params, core_state, timestep)
    unused = jnp.zeros((*logits.shape[:-1], self._unused), logits.dtype)
    logits = jnp.concatenate([logits, unused], axis=-1)
    action = self._distribution.action(self._distribution.mode(logits))
    return ActOutput(action, {}, self.network.record_action(core_state, action))

  def update(
    self, state: EvolutionState, unrolls: Unroll, probabilities: Array | None
  ) -> UpdateOutput:
    """Raises NotImplementedError, since nothing is learned from unrolls."""
    raise NotImplementedError('evolution strategies learn from returns; see `evolve`.')

  def flat(self, params: Nest) -> Array:
    """Returns parameters as one vector, float32 `[D]`: the weights, then any statistics."""
    return ravel_pytree(_split(params))[0]

  def unflatten(self, like: Nest) -> Callable[[Array], Nest]:
    """Returns the inverse of `flat`, for parameters with the shapes of `like`."""
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
    inverse = ravel_pytree(_split(zeros))[1]
    return lambda vector: functools.reduce(operator.or_, inverse(vector))

  def perturbed(self, vector: Array, seeds: Array) -> Array:
    """Returns the parameters of the policies of pairs, float32 `[P, 2, D]`; statistics have no noise.

    Args:
      vector: `[D]`, of the generation.
      seeds: uint32 `[P, K]`, of the pairs.
    """
    weights, _ = _split(shapes.params(self))
    size = sum(leaf.size for leaf in jax.tree.leaves(weights))

    def pair(seed: Array) -> Array:
      policies = strategy.perturbed(vector[:size], seed, self._config.sigma)
      return jnp.hstack([policies, jnp.tile(vector[size:], (2, 1))])

    return jax.vmap(pair)(seeds)

  def nothing_seen(self) -> Nest:
    """Returns statistics of no observations, with `normalize_observations`; `{}` without."""
    if not self._config.normalize_observations:
      return {}
    return observation_statistics.initial(spaces.seen(self._observation_spec))

  def having_seen(self, statistics: Nest, observation: Nest) -> Nest:
    """Returns statistics with one more observation, `[...]` per leaf; `{}` stays."""
    if not statistics:
      return statistics
    return observation_statistics.merged(statistics, spaces.seen(observation))

  def pooled(self, statistics: Nest) -> Array:
    """Returns statistics of several episodes, `[K, ...]` per leaf, as one vector, float32 `[S]`."""
    return ravel_pytree(observation_statistics.pooled(statistics) if statistics else {})[0]

  def evolve(
    self, state: EvolutionState, seeds: Array, returns: Array, seen: Array
  ) -> tuple[EvolutionState, dict[str, Array]]:
    """Does one learner step.

    Args:
      state: the learner state whose parameters were perturbed.
      seeds: uint32 `[P, K]`, of the generation's pairs.
      returns: float32 `[P, 2]`, of the episodes of each pair.
      seen: float32 `[K, S]`, what `pooled` returned for K parts of the generation.

    Returns:
      The next state, and metrics: `grad_norm`, `params_norm` and `learning_rate`.
    """
    weights, statistics = _split(state.params)
    vector, unflatten = ravel_pytree(weights)
    shaped = strategy.centred_ranks(returns)
    ascent = strategy.search_gradient(shaped, seeds, vector.shape[0])
    gradient = unflatten(self._config.l2_cost * vector - ascent)
    weights, opt_state, grad_norm = self._optimizer.step(gradient, state.opt_state, weights)
    metrics = {
      'grad_norm': grad_norm,
      'params_norm': jnp.linalg.norm(vector),
      'learning_rate': self._optimizer.learning_rate(state.learner_steps),
    }
    if statistics:
      # The next generation acts with the statistics of all observations before it.
      before, inverse = ravel_pytree(statistics[OBSERVATIONS])
      parts = jax.vmap(inverse)(jnp.concatenate([before[None], seen]))
      statistics = {OBSERVATIONS: observation_statistics.pooled(parts)}
    return EvolutionState(weights | statistics, opt_state, state.learner_steps + 1), metrics


def _split(params: Nest) -> tuple[Nest, Nest]:
  """Returns the weights, which are perturbed, and the statistics of observations, `{}` without them."""
  known = {name: params[name] for name in (OBSERVATIONS,) if name in params}
  return {name: part for name, part in params.items() if name not in known}, known
