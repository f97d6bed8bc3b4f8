"""R2D2 as an `Agent`: discrete actions, prioritized replay."""

from __future__ import annotations

from typing import NamedTuple

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np
import optax

from agents.agent import UpdateOutput
from agents.axes import swapped
from agents.metrics import policy_lag
from agents.networks.recurrent import RecurrentNetwork
from agents.optimizers import Optimizer
from agents.priorities import importance_weights
from agents.q_learning.agent import QLearning
from agents.r2d2 import loss as losses
from agents.r2d2.config import R2D2Config
from agents.r2d2.loss import n_step_targets
from agents.r2d2.network import DuelingHead
from agents.spaces import check_actions
from agents.types import Array, Nest, Timestep, Unroll


class R2D2State(NamedTuple):
  """The learner state of R2D2."""

  params: Nest
  target_params: Nest
  opt_state: optax.OptState
  learner_steps: Array  # int32 `[]`, updates done.


class R2D2(QLearning):
  """Recurrent replay distributed DQN (Kapturowski et al. 2019).

  An unroll has `burn_in` rows, which only refresh its stored core state, then the `unroll_length + 1`
  rows of its *suffix*, whose transitions are trained on. Unrolls start `unroll_length` rows apart, so
  suffixes tile the stream: each transition is in exactly one, except for the first ones of a stream.
  Unrolls cross episode ends, where the core state is reset.

  The constructor starts no JAX backend. An update reduces over the whole batch, so under `jax.jit` the
  result is the same on one device and sharded over many.

  Attributes:
    network: the network whose outputs are Q-values `[..., A]` in the range of h.

  Raises:
    ValueError: the config is unusable, or actions are not discrete.
  """

  Config = R2D2Config

  def __init__(
    self,
    config: R2D2Config,
    observation_spec: Nest,
    action_spec: dm_env.specs.Array,
  ) -> None:
    config.validate()
    check_actions(config, action_spec)
    head = DuelingHead(action_spec.num_values, config.head_size, config.init)
    network = RecurrentNetwork(config, observation_spec, action_spec, head)
    super().__init__(config, network, observation_spec, action_spec)
    self.unroll_rows = config.unroll_rows
    self.unroll_period = config.unroll_length
    self._config = config
    self._optimizer = Optimizer(config)

  def init(self, key: Array) -> R2D2State:
    """Returns a new learner state; the target network starts as a copy of the online network."""
    params = self.network.init(key)
    target_params = jax.tree.map(jnp.copy, params)
    return R2D2State(params, target_params, self._optimizer.init(params), jnp.int32(0))

  def with_params(self, state: R2D2State, params: Nest) -> R2D2State:
    """Returns a new learner state, whose online and target network have the other run's parameters."""
    return state._replace(params=params, target_params=jax.tree.map(np.copy, params))

  def policy(
    self, params: Nest, output: Array, timestep: Timestep, exploration: Array, keys: Array
  ) -> tuple[Array, dict[str, Array]]:
    """Acts epsilon-greedily; see the base class.

    Returns:
      Actions int32 `[B]`, and the extras `q_values`, float32 `[B, A]`, in the range of h.
    """
    action, _ = super().policy(params, output, timestep, exploration, keys)
    # New unrolls get their first priorities from these, before any learner has seen them.
    return action, {'q_values': output}

  def targets(
    self, q_online: Array, q_target: Array, action: Array, timestep: Timestep, valid: Array
  ) -> Array:
    """Returns what Q of the actions taken learns, `[U, B]`, in the range of h.

    Args:
      q_online: float32 `[U+1, B, A]`, in the range of h.
      q_target: float32 `[U+1, B, A]`, of the target network.
      action: int `[U+1, B]`, the actions taken.
      timestep: step types, raw rewards and discounts, `[U+1, B]`; rewards and discounts of row t+1
        belong to the transition t -> t+1.
      valid: bool `[U, B]`; false where row t is LAST, so that t -> t+1 is not a transition.
    """
    return n_step_targets(self._config, q_online, q_target, action, timestep, valid)

  def initial_priorities(self, unrolls: Unroll) -> Array:
    """Returns the priorities of new unrolls, float32 `[B]`, from the Q-values recorded in the extras.

    They equal those of `update` if online and target network both had the acting parameters of every
    row.
    """
    config, (timestep, action) = self._config, self._suffix((unrolls.timestep, unrolls.action))
    q_values = self._suffix(unrolls.extras['q_values'])
    td = losses.td_errors(config, q_values, q_values, action, timestep, self.targets)
    return losses.priorities(config, td)

  def suffix_q_values(self, params: Nest, unrolls: Unroll) -> Array:
    """Unrolls the network from the core states of replay; returns Q of the suffix, `[U+1, B, A]`.

    With `replay_state` 'zero', the stored ones are not used (section 3 of the paper compares both). No
    gradient flows through the core state after burn-in.
    """
    rows = swapped((unrolls.timestep, unrolls.action))
    burn_in, core_state = self._config.burn_in, unrolls.core_state
    if self._config.replay_state == 'zero':
      core_state = self.initial_core_state(rows[1].shape[1])
    if burn_in:
      prefix = jax.tree.map(lambda x: x[:burn_in], rows)
      _, core_state = self.network.unroll(params, core_state, *prefix)
      core_state = jax.lax.stop_gradient(core_state)
    suffix = jax.tree.map(lambda x: x[burn_in:], rows)
    return self.network.unroll(params, core_state, *suffix)[0]

  def loss(
    self, params: Nest, target_params: Nest, unrolls: Unroll, probabilities: Array | None
  ) -> tuple[Array, tuple[Array, dict[str, Array]]]:
    """Returns the loss of a batch, float32 `[]`, its priorities, float32 `[B]`, and metrics.

    Each network does its own burn-in from the same core state. The arguments are as in `update`.
    """
    timestep, action = self._suffix((unrolls.timestep, unrolls.action))
    exponent = self._config.importance_exponent
    # Replay samples large errors more often than they occur; the weights take that back.
    weights = importance_weights(probabilities, exponent, action.shape[1])
    q_online = self.suffix_q_values(params, unrolls)
    q_target = self.suffix_q_values(target_params, unrolls)
    return self.loss_of_output(q_online, q_target, action, timestep, weights)

  def loss_of_output(
    self, q_online: Array, q_target: Array, action: Array, timestep: Timestep, weights: Array
  ) -> tuple[Array, tuple[Array, dict[str, Array]]]:
    """Returns the loss as `loss` does, from the Q-values of both networks. A further term is added here.

    Args:
      q_online: as in `targets`, with a gradient; so are `q_target`, `action` and `timestep`.
      q_target: of the target network.
      action: the actions taken.
      timestep: of the suffix.
      weights: float32 `[B]`, the importance weights.
    """
    return losses.r2d2_loss(
      self._config, q_online, q_target, action, timestep, weights, self.targets
    )

  def update(
    self, state: R2D2State, unrolls: Unroll, probabilities: Array | None = None
  ) -> UpdateOutput:
    """Does one gradient step.

    Args:
      state: the learner state; its buffers may be donated.
      unrolls: fields are `[B, burn_in + U + 1, ...]`; the extras are not used.
      probabilities: float32 `[B]`, with which replay sampled each unroll; None for uniform ones.

    Returns:
      The next state; priorities, float32 `[B]`, from the errors before the step; and the metrics of
      `loss` with `grad_norm` (before clipping), `learning_rate`, and `policy_lag_mean` and
      `policy_lag_max`, in learner steps, over the rows of the suffix.
    """
    gradients, (priorities, metrics) = jax.grad(self.loss, has_aux=True)(
      state.params, state.target_params, unrolls, probabilities
    )
    params, opt_state, grad_norm = self._optimizer.step(gradients, state.opt_state, state.params)
    learner_steps = state.learner_steps + 1
    target_params = optax.periodic_update(
      params, state.target_params, learner_steps, self._config.target_update_period
    )
    metrics = {
      **metrics,
      'grad_norm': grad_norm,
      'learning_rate': self._optimizer.learning_rate(state.learner_steps),
      **policy_lag(state.learner_steps, self._suffix(unrolls.policy_version)),
    }
    state = R2D2State(params, target_params, opt_state, learner_steps)
    return UpdateOutput(state, priorities, metrics)

  def _suffix(self, rows: Nest) -> Nest:
    """Returns the rows after burn-in, `[U+1, B, ...]`, of fields `[B, L, ...]`."""
    return jax.tree.map(lambda x: x[self._config.burn_in :], swapped(rows))
