"""Evolution strategies as an `Agent`: a policy without a value, which learns from returns alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import dm_env.specs
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from agents import action_mask
from agents.actor_critic.choice import make_distribution
from agents.agent import ActOutput, Agent, UpdateOutput
from agents.evolution import strategy
from agents.evolution.config import EvolutionConfig
from agents.networks.recurrent import RecurrentNetwork
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
  unroll_rows, unroll_period = (
    2,
    1,
  )  # Of an agent without memory of rows; nothing is learned from them.

  def __init__(
    self, config: EvolutionConfig, observation_spec: Nest, action_spec: dm_env.specs.Array
  ) -> None:
    """Initialises the network and the optimizer; the arguments are those of other agents.

    Raises:
      ValueError: the config is unusable, or no agent takes the observations or actions.
    """
    config.validate()
    self._config = config
    self._distribution = make_distribution(action_spec, 'free')
    # A standard deviation that no state changes is not used, and is no parameter.
    self._unused = self._distribution.num_free
    head = PolicyHead(self._distribution.num_logits - self._unused)
    self.network = RecurrentNetwork(config, observation_spec, action_spec, head)
    self._optimizer = Optimizer(config)

  def init(self, key: Array) -> EvolutionState:
    """Returns a new learner state."""
    params = self.network.init(key)
    return EvolutionState(params, self._optimizer.init(params), jnp.zeros((), jnp.int32))

  def initial_core_state(self, batch_size: int) -> Nest:
    """Returns the core state at the start of an episode, `{}` without LSTM and frame stack."""
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
    """Returns parameters as one vector, float32 `[D]`, to which noise is added."""
    return ravel_pytree(params)[0]

  def unflatten(self, like: Nest) -> Callable[[Array], Nest]:
    """Returns the inverse of `flat`, for parameters with the shapes of `like`."""
    return ravel_pytree(jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like))[1]

  def perturbed(self, vector: Array, seeds: Array) -> Array:
    """Returns the parameters of the policies of pairs, float32 `[P, 2, D]`.

    Args:
      vector: `[D]`, of the generation.
      seeds: uint32 `[P, K]`, of the pairs.
    """
    return jax.vmap(lambda seed: strategy.perturbed(vector, seed, self._config.sigma))(seeds)

  def evolve(
    self, state: EvolutionState, seeds: Array, returns: Array
  ) -> tuple[EvolutionState, dict[str, Array]]:
    """Does one learner step.

    Args:
      state: the learner state whose parameters were perturbed.
      seeds: uint32 `[P, K]`, of the generation's pairs.
      returns: float32 `[P, 2]`, of the episodes of each pair.

    Returns:
      The next state, and metrics: `grad_norm`, `params_norm` and `learning_rate`.
    """
    vector, unflatten = ravel_pytree(state.params)
    shaped = strategy.centred_ranks(returns)
    ascent = strategy.search_gradient(shaped, seeds, vector.shape[0])
    gradient = unflatten(self._config.l2_cost * vector - ascent)
    params, opt_state, grad_norm = self._optimizer.step(gradient, state.opt_state, state.params)
    metrics = {
      'grad_norm': grad_norm,
      'params_norm': jnp.linalg.norm(vector),
      'learning_rate': self._optimizer.learning_rate(state.learner_steps),
    }
    return EvolutionState(params, opt_state, state.learner_steps + 1), metrics
