"""PQN as an `Agent`: discrete actions, a queue as replay."""

from __future__ import annotations

from typing import NamedTuple

import dm_env.specs
import flax.linen as nn
import jax
import jax.numpy as jnp

from agents import action_mask, masked, minibatches
from agents.agent import UpdateOutput
from agents.axes import swapped
from agents.metrics import policy_lag
from agents.minibatches import MinibatchState
from agents.networks.recurrent import RecurrentNetwork
from agents.networks.torsos import output_init
from agents.optimizers import Optimizer
from agents.pqn.config import PQNConfig
from agents.pqn.targets import lambda_returns
from agents.q_learning.agent import QLearning
from agents.q_learning.values import select
from agents.rewards import scaled_rewards
from agents.spaces import check_actions
from agents.types import Array, Nest, Timestep, Unroll


class Samples(NamedTuple):
  """What the loss takes: `N` samples of `L` consecutive rows each, `[N, L, ...]`.

  A sample is an unroll without its bootstrap row, or a single transition with L = 1.
  """

  timestep: Timestep
  action: Array  # int `[N, L]`, taken.
  valid: Array  # bool; false where the row is LAST, so that no transition begins there.
  target: Array  # float32, of Q of the action.
  core_state: Nest  # `[N, ...]` per leaf, before the first row; no time axis.


class ActionValues(nn.Module):
  """The head: one layer, whose outputs are Q-values."""

  num_actions: int
  init_of: str = 'fan_in'

  @nn.compact
  def __call__(self, features: Array) -> Array:
    """Maps float32 `[..., D]` to Q-values `[..., num_actions]`."""
    return nn.Dense(self.num_actions, kernel_init=output_init(self.init_of), name='q')(features)

  masked = staticmethod(action_mask.masked)


class PQN(QLearning):
  """The parallelised Q-network (Gallici et al. 2025): Q-learning without replay and target network.

  One update is one learner step, of `num_epochs` passes over the batch in `num_minibatches` gradient
  steps each. Minibatches are of single transitions, or of whole unrolls with a core. The returns are
  computed once, from the stored rewards and discounts and from the values of the rows with the
  parameters before the update. Equal states and batches give equal updates. A minibatch is a mean over
  all devices, so under `jax.jit` the result is the same on one device and sharded over many.

  The constructor starts no JAX backend.

  Attributes:
    network: the network whose outputs are Q-values `[..., A]`, of rewards as the loss scales them.

  Raises:
    ValueError: the config is unusable, or actions are not discrete.
  """

  Config = PQNConfig

  def __init__(
    self,
    config: PQNConfig,
    observation_spec: Nest,
    action_spec: dm_env.specs.Array,
  ) -> None:
    config.validate()
    check_actions(config, action_spec)
    head = ActionValues(action_spec.num_values, config.init)
    network = RecurrentNetwork(config, observation_spec, action_spec, head)
    super().__init__(config, network, observation_spec, action_spec)
    self.unroll_rows = config.unroll_rows
    self.unroll_period = config.unroll_length
    self._config = config
    self._optimizer = Optimizer(config, config.gradient_steps_per_update)

  def init(self, key: Array) -> MinibatchState:
    """Returns a new learner state."""
    params_key, key = jax.random.split(key)
    params = self.network.init(params_key)
    opt_state = self._optimizer.init(params)
    return MinibatchState(params, opt_state, jnp.zeros((), jnp.int32), jax.random.key_data(key))

  def targets(self, q_values: Array, action: Array, timestep: Timestep, valid: Array) -> Array:
    """Returns what Q of the actions taken learns, `[T, B]`.

    Args:
      q_values: float32 `[T+1, B, A]`; those of the last row only bootstrap.
      action: int `[T+1, B]`, the actions taken.
      timestep: step types, raw rewards and discounts, `[T+1, B]`; rewards and discounts of row t+1
        belong to the transition t -> t+1.
      valid: bool `[T, B]`; false where row t is LAST, so that t -> t+1 is not a transition.
    """
    del action
    return lambda_returns(
      jnp.max(q_values, axis=-1),
      # Reward and discount of the transition t -> t+1 arrived with row t+1.
      scaled_rewards(self._config, timestep.reward[1:]),
      self._config.discount * timestep.discount[1:],
      valid,
      self._config.q_lambda,
    )

  def loss(self, params: Nest, minibatch: Samples) -> tuple[Array, dict[str, Array]]:
    """Returns the loss of a minibatch, float32 `[]`, and metrics.

    Args:
      params: of the network.
      minibatch: samples, `[N, L, ...]`; the network runs over their rows from their core states.
    """
    rows = swapped(minibatch._replace(core_state=None))
    q_values, _ = self.network.for_loops().unroll(
      params, minibatch.core_state, rows.timestep, rows.action
    )
    return self.loss_of_output(q_values, rows)

  def loss_of_output(self, output: Array, rows: Samples) -> tuple[Array, dict[str, Array]]:
    """Returns half the mean squared error of Q-values `[L, N, A]` on rows `[L, N, ...]`, and metrics.

    A further term is added here. `rows` have no core state.
    """
    q_values = select(output, rows.action)
    errors = masked.kept(rows.target - q_values, rows.valid)
    loss = masked.mean(0.5 * jnp.square(errors), rows.valid)
    metrics = {
      'loss': loss,
      'td_error': masked.mean(jnp.abs(errors), rows.valid),
      'q_value': masked.mean(q_values, rows.valid),
    }
    return loss, jax.lax.stop_gradient(metrics)

  def update(
    self, state: MinibatchState, unrolls: Unroll, probabilities: Array | None = None
  ) -> UpdateOutput:
    """Does one learner step.

    Args:
      state: the learner state; its buffers may be donated.
      unrolls: fields are `[B, T+1, ...]`; the extras are not used. The samples, B * T transitions or,
        with a core, B unrolls, are a multiple of `num_minibatches`.
      probabilities: ignored; a queue does not sample.

    Returns:
      The next state, no priorities, and metrics. Those of `loss` and `grad_norm` (before clipping) are
      means over the gradient steps, `target_value` over the transitions. `td_error` is of absolute
      errors, `q_value` of the actions taken. `gradient_steps` counts those of the run; `learning_rate`,
      `policy_lag_mean` and `policy_lag_max` are as in V-trace.
    """
    del probabilities
    # Returns stay those of the parameters before the update: what Q moves towards does not move with it.
    samples, metrics = self._samples(state.params, unrolls)
    params, opt_state, of_steps = minibatches.learn(
      self._config, self.loss, self._optimizer, state, state.params, samples
    )
    metrics = {
      **of_steps,
      **metrics,
      **policy_lag(state.learner_steps, unrolls.policy_version),
    }
    state = MinibatchState(params, opt_state, state.learner_steps + 1, state.key)
    return UpdateOutput(state, None, metrics)

  def _samples(self, params: Nest, unrolls: Unroll) -> tuple[Samples, dict[str, Array]]:
    """Returns the samples of a batch, and metrics of the parameters before the update."""
    timestep, action = swapped((unrolls.timestep, unrolls.action))
    q_values, _ = self.network.unroll(params, unrolls.core_state, timestep, action)
    valid = masked.transitions(timestep.step_type[:-1])
    target = self.targets(jax.lax.stop_gradient(q_values), action, timestep, valid)
    metrics = {'target_value': masked.mean(target, valid)}
    timestep, action = jax.tree.map(lambda x: x[:-1], (timestep, action))
    samples = Samples(timestep, action, valid, target, core_state=None)
    samples = minibatches.make_samples(self._config, samples, unrolls.core_state, self.network)
    return samples, metrics
