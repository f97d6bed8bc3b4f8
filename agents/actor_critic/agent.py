"""What agents with a policy share: the network, acting with it, and running it over unrolls."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import NamedTuple

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np
import optax

from agents import masked
from agents.actor_critic import normalization
from agents.actor_critic.choice import make_distribution
from agents.actor_critic.config import ActorCriticConfig, PolicyConfig
from agents.actor_critic.head import PolicyValue, PolicyValueHead
from agents.actor_critic.normalization import DISCOUNTED_RETURN
from agents.agent import ActOutput, LearnerState
from agents.axes import swapped
from agents.network_agent import NetworkAgent
from agents.networks.recurrent import RecurrentNetwork
from agents.optimizers import Optimizer
from agents.spaces import check_normalization
from agents.types import Array, Nest, Timestep, Unroll
from agents.vtrace.targets import Targets


class Rows(NamedTuple):
  """The rows of a batch of unrolls in the order of time, `[T+1, B, ...]`."""

  timestep: Timestep
  action: Array
  draw: Array  # What the policy sampled; see `agents.actor_critic.distributions`.
  behaviour_logits: Array  # float32 `[T+1, B, P]`, of the policy mu that acted.

  @property
  def valid(self) -> Array:
    """Which rows begin a transition, bool `[T, B]`; the last row only bootstraps."""
    return masked.transitions(self.timestep.step_type[:-1])


class PolicyAgent(NetworkAgent):
  """An agent with a stochastic policy and a value; subclasses define `init`, `update` and the loss.

  The constructor starts no JAX backend.

  Attributes:
    network: the network; it outputs `PolicyValue`s.
    distribution: the policy's distribution, with the logits as parameters.

  Raises:
    ValueError: the config is unusable or does not fit the observations, or the actions are neither
      discrete nor bounded.
  """

  evaluation_exploration = 0.0

  def __init__(
    self,
    config: PolicyConfig,
    observation_spec: Nest,
    action_spec: dm_env.specs.Array,
    gradient_steps: int = 1,
  ) -> None:
    """Initialises the network and the optimizer.

    Args:
      config: of the agent.
      observation_spec: of one observation.
      action_spec: of one action.
      gradient_steps: gradient steps in one learner step.
    """
    config.validate()
    check_normalization(config, observation_spec)
    self._config = config
    self._observation_spec = observation_spec
    self.distribution = make_distribution(action_spec, config.policy_std)
    twins = config.separate_critic
    head = PolicyValueHead(
      self.distribution.num_logits, self.distribution.num_free, twins, config.init
    )
    self.network = RecurrentNetwork(config, observation_spec, action_spec, head, twins=twins)
    self._optimizer = Optimizer(config, gradient_steps)

  def exploration(self, num_environments: int) -> np.ndarray:
    """Returns ones: training environments sample from the policy. 0 would select its mode."""
    return np.ones((num_environments,), np.float32)

  def policy(
    self, params: Nest, output: PolicyValue, timestep: Timestep, exploration: Array, keys: Array
  ) -> tuple[Array, dict[str, Array]]:
    """Samples an action where exploration is above 0; takes the policy's mode elsewhere.

    Args:
      params: the `params` of a learner state.
      output: the network's logits `[B, P]` and values `[B]`.
      timestep: fields are `[B, ...]`.
      exploration: float32 `[B]`.
      keys: `[B]` typed PRNG keys, one for each environment.

    Returns:
      Actions `[B, ...]`, and the extras `behaviour_logits`, float32 `[B, P]`, and, for continuous
      actions, `draw`, float32 `[B, A]`. A subclass that acts by other logits stores those.
    """
    del params, timestep
    sampled = jax.vmap(self.distribution.sample)(keys, output.logits)
    mode = self.distribution.mode(output.logits)
    explores = (exploration > 0.0).reshape(-1, *[1] * (mode.ndim - 1))
    draw = jnp.where(explores, sampled, mode)
    # The logits of the policy mu that acts travel with the row. Its parameters are gone by the time the
    # row is learned from, and pi/mu needs the probability that the action was drawn with.
    extras = {'behaviour_logits': output.logits}
    if self.distribution.has_draws:
      extras['draw'] = draw
    return self.distribution.action(draw), extras

  def _init_params(self, key: Array) -> tuple[Nest, optax.OptState]:
    """Returns new parameters, statistics included, and the state of the optimizer of the weights."""
    weights = self.network.init(key)
    found = normalization.initial(self._config, self._observation_spec)
    return weights | found, self._optimizer.init(weights)

  def _gradient_step(
    self,
    loss: Callable[[Nest, Unroll], tuple[Array, dict[str, Array]]],
    state: LearnerState,
    unrolls: Unroll,
    discount: float,
  ) -> tuple[Nest, optax.OptState, dict[str, Array]]:
    """Does one gradient step on a whole batch.

    Args:
      loss: takes parameters and unrolls; returns the loss and metrics.
      state: the learner state.
      unrolls: fields are `[B, T+1, ...]`.
      discount: gamma, of the returns whose deviation divides the rewards.

    Returns:
      The next parameters, statistics included; the next state of the optimizer; and the metrics of
      `loss` with `grad_norm` (before clipping), `learning_rate` and, with normalised rewards,
      `return_std`.
    """
    weights, statistics = normalization.split(state.params)
    used, after = normalization.of_batch(statistics, unrolls, discount)

    def loss_of_weights(weights: Nest) -> tuple[Array, dict[str, Array]]:
      return loss(weights | used, unrolls)  # The statistics are counted, and have no gradient.

    gradients, metrics = jax.grad(loss_of_weights, has_aux=True)(weights)
    weights, opt_state, grad_norm = self._optimizer.step(gradients, state.opt_state, weights)
    metrics = {
      **metrics,
      **normalization.metrics(used),
      'grad_norm': grad_norm,
      'learning_rate': self._optimizer.learning_rate(state.learner_steps),
    }
    return weights | after, opt_state, metrics


class ActorCritic(PolicyAgent):
  """An agent that learns a policy and its value from unrolls: V-trace and PPO."""

  def __init__(
    self,
    config: ActorCriticConfig,
    observation_spec: Nest,
    action_spec: dm_env.specs.Array,
    gradient_steps: int = 1,
  ) -> None:
    """Initialises as the base class does."""
    super().__init__(config, observation_spec, action_spec, gradient_steps)
    self._config: ActorCriticConfig = config
    self.unroll_rows = config.unroll_rows
    self.unroll_period = config.unroll_length

  def initial_core_state(self, batch_size: int) -> Nest:
    """Returns the core state at the start of an episode.

    Where rewards are normalised, it also holds the discounted return so far, float32 `[batch_size]`.
    """
    core_state = super().initial_core_state(batch_size)
    if self._config.normalize_rewards:
      core_state[DISCOUNTED_RETURN] = jnp.zeros(batch_size, jnp.float32)
    return core_state

  def act(
    self, params: Nest, core_state: Nest, timestep: Timestep, exploration: Array, keys: Array
  ) -> ActOutput:
    """Acts as the base class does, and keeps the return so far where rewards are normalised."""
    acted = super().act(params, core_state, timestep, exploration, keys)
    if not self._config.normalize_rewards:
      return acted
    before, discount = core_state[DISCOUNTED_RETURN], self._config.discount
    after = normalization.next_return(before, timestep, discount)
    return acted._replace(core_state={**acted.core_state, DISCOUNTED_RETURN: after})

  @abc.abstractmethod
  def targets(self, values: Array, rhos: Array, timestep: Timestep, valid: Array) -> Targets:
    """Returns what values and policy learn from T transitions.

    Args:
      values: float32 `[T+1, B]`, V of the learner's parameters; the last only bootstraps.
      rhos: float32 `[T, B]`, pi/mu of the actions taken, unclipped.
      timestep: step types, rewards before `reward_scale` and discounts, `[T+1, B]`; rewards and
        discounts of row t+1 belong to the transition t -> t+1.
      valid: bool `[T, B]`; false where row t is LAST, so that t -> t+1 is not a transition.
    """

  def forward(self, params: Nest, unrolls: Unroll) -> tuple[PolicyValue, Rows]:
    """Runs the network over unrolls, from their core states.

    Args:
      params: weights and, where they are normalised, the statistics of observations and returns.
      unrolls: fields are `[B, T+1, ...]`, extras as returned by `act`.

    Returns:
      Logits `[T+1, B, P]` and values `[T+1, B]`, and the rows as the loss sees them, with normalised
      rewards.
    """
    rows = self._rows(unrolls)
    # The network receives the raw reward, as in `act`: its core state would differ otherwise.
    output, _ = self.network.unroll(params, unrolls.core_state, rows.timestep, rows.action)
    reward = normalization.normalized_rewards(params, rows.timestep.reward)
    return output, rows._replace(timestep=rows.timestep._replace(reward=reward))

  def log_ratios(self, output: PolicyValue, rows: Rows) -> Array:
    """Returns log pi/mu of the actions of T transitions, float32 `[T, B]`; 0 where none begins.

    It has a gradient, that of log pi. The mean of its negative estimates KL(mu || pi).
    """
    draw = masked.kept(rows.draw[:-1], rows.valid)
    log_pi = self.distribution.log_prob(output.logits[:-1], draw)
    log_mu = self.distribution.log_prob(rows.behaviour_logits[:-1], draw)
    return masked.kept(log_pi - log_mu, rows.valid)

  def _rows(self, unrolls: Unroll) -> Rows:
    """Returns the rows of unrolls `[B, T+1, ...]` whose extras are those of `act`."""
    timestep, action, extras = swapped((unrolls.timestep, unrolls.action, unrolls.extras))
    draw = extras['draw'] if self.distribution.has_draws else action
    return Rows(timestep, action, draw, extras['behaviour_logits'])
