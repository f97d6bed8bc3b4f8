"""Learned intrinsic rewards as an `Agent`: discrete actions, one dm_env episode is a lifetime."""

from __future__ import annotations

from typing import NamedTuple

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np
import optax

from agents import lifetimes, masked
from agents.agent import ActOutput, Agent, UpdateOutput
from agents.axes import swapped
from agents.intrinsic_rewards.config import IntrinsicRewardsConfig
from agents.intrinsic_rewards.inner import Consumed, CoreState, InnerLoop, Params
from agents.metrics import policy_lag
from agents.optimizers import Optimizer
from agents.spaces import check_actions
from agents.types import Array, Timestep, Unroll
from agents.vtrace.targets import Targets, vtrace


class IntrinsicRewardsState(NamedTuple):
  """The learner state."""

  params: Params
  opt_state: optax.OptState
  learner_steps: Array  # int32 `[]`, updates done.


class UnrollReplay(NamedTuple):
  """Unrolls, repeated. Row t of T+1."""

  values: Array  # float32 `[T+1, B]`, of the lifetime so far.
  log_probs: Array  # float32 `[T, B, A]`, of the actions on rows 0 to T-1.
  intrinsic_reward: Array  # float32 `[T, B]`, of the transitions into rows 1 to T.
  state: CoreState  # After row T was consumed.


class IntrinsicRewards(Agent):
  """Learned intrinsic rewards (Zheng et al. 2020, "What Can Learned Intrinsic Rewards Capture?").

  The core state holds the inner policy. A FIRST row draws it, and every `inner_period` transitions it
  learns from the intrinsic reward alone. An update repeats the rows of an unroll, inner updates
  included, and differentiates the lifetime's extrinsic return through them (equations 3 and 4).

  Unrolls have `inner_updates` trajectories, and share one row. An update reduces over the whole batch,
  so under `jax.jit` the result is the same on one device and sharded over many.

  Attributes:
    inner: the lifetime row by row.
    evaluation_exploration: 1, as in training: the inner policy learns from the actions it samples.

  Raises:
    ValueError: the config is unusable, or the environment has no lifetimes or no discrete actions.
  """

  Config = IntrinsicRewardsConfig
  evaluation_exploration = 1.0

  def __init__(
    self,
    config: IntrinsicRewardsConfig,
    observation_spec: dm_env.specs.Array,
    action_spec: dm_env.specs.Array,
  ) -> None:
    config.validate()
    check_actions(config, action_spec)
    if not isinstance(observation_spec, lifetimes.LifetimeObservation):
      raise ValueError(
        'intrinsic_rewards needs an environment whose episode is a lifetime, such as '
        f'--env=lifetime:random_abc, not observations {observation_spec!r}.'
      )
    self.unroll_rows = config.unroll_rows
    self.unroll_period = config.unroll_length
    self.inner = InnerLoop(config, observation_spec.num_features, action_spec.num_values)
    self._config = config
    self._optimizer = Optimizer(config)

  def init(self, key: Array) -> IntrinsicRewardsState:
    """Returns a new learner state."""
    params = self.inner.init(key)
    return IntrinsicRewardsState(params, self._optimizer.init(params), jnp.int32(0))

  def initial_core_state(self, batch_size: int) -> CoreState:
    """Returns the state before a lifetime, `[batch_size, ...]` per leaf."""
    return self.inner.initial(batch_size)

  def exploration(self, num_environments: int) -> np.ndarray:
    """Returns ones, float32 `[num_environments]`: all sample from the inner policy."""
    return np.ones(num_environments, np.float32)

  def act(
    self,
    params: Params,
    core_state: CoreState,
    timestep: Timestep,
    exploration: Array,
    keys: Array,
  ) -> ActOutput:
    """Acts by `policy`, after the update of the inner policy where one is due.

    Args:
      params: the `params` of a learner state.
      core_state: `[B, ...]` per leaf, before the timestep.
      timestep: fields are `[B, ...]`.
      exploration: float32 `[B]`.
      keys: `[B]` typed PRNG keys.

    Returns:
      Actions int32 `[B]`; the extras `policy_key`, uint32 `[B, ...]`, by which a FIRST row drew the
      policy, and `intrinsic_reward`, float32 `[B]`, of the transition into the row; the core state.
    """
    split = jax.vmap(jax.random.split)(keys)
    policy_key = jax.random.key_data(split[:, 0])
    state, consumed = self.inner.consume(params, core_state, timestep, policy_key)
    log_probs = self._log_probs(state, timestep)
    action, extras = self.policy(params, log_probs, timestep, exploration, split[:, 1])
    # With the key the update draws the same policy again, whose rows it differentiates through.
    extras = {**extras, 'policy_key': policy_key, 'intrinsic_reward': consumed.reward}
    return ActOutput(action, extras, self.inner.record(state, timestep.observation, action))

  def policy(
    self, params: Params, output: Array, timestep: Timestep, exploration: Array, keys: Array
  ) -> tuple[Array, dict[str, Array]]:
    """Samples from the inner policy.

    Args:
      params: the `params` of a learner state.
      output: log probabilities of the inner policy, float32 `[B, A]`.
      timestep: fields are `[B, ...]`.
      exploration: ignored.
      keys: `[B]` typed PRNG keys.

    Returns:
      Actions int32 `[B]`, and no extras of its own.
    """
    del params, timestep, exploration
    return jax.vmap(jax.random.categorical)(keys, output).astype(jnp.int32), {}

  def replay(self, params: Params, unrolls: Unroll) -> UnrollReplay:
    """Repeats unrolls with given parameters of reward and value.

    The policies of rows 1 to T are functions of the reward's parameters. What lies before them is
    constant: the core state, and the intrinsic reward of row 0.

    Args:
      params: reward and value.
      unrolls: fields are `[B, T+1, ...]`, extras as returned by `act`.
    """
    timestep, action, extras = swapped((unrolls.timestep, unrolls.action, unrolls.extras))
    rows = timestep, extras['policy_key'], extras['intrinsic_reward']
    first = jax.tree.map(lambda x: x[0], rows)
    state, consumed = self.inner.consume(params, unrolls.core_state, *first)

    def transition(
      state: CoreState, rows: tuple[Timestep, Array, Timestep, Array]
    ) -> tuple[CoreState, tuple[Array, Consumed]]:
      timestep, action, later, policy_key = rows
      log_probs = self._log_probs(state, timestep)
      state = self.inner.record(state, timestep.observation, action)
      state, consumed = self.inner.consume(params, state, later, policy_key)
      return state, (log_probs, consumed)

    now = jax.tree.map(lambda x: x[:-1], (timestep, action))
    later = jax.tree.map(lambda x: x[1:], (timestep, extras['policy_key']))
    state, (log_probs, after) = jax.lax.scan(transition, state, (*now, *later))
    values = jnp.concatenate([consumed.value[None], after.value])
    return UnrollReplay(values, log_probs, after.reward, state)

  def loss(self, params: Params, unrolls: Unroll) -> tuple[Array, dict[str, Array]]:
    """Returns the outer loss of a batch of unrolls, and metrics.

    Args:
      params: reward and value.
      unrolls: fields are `[B, T+1, ...]`, extras as returned by `act`.
    """
    config = self._config
    timestep, action = swapped((unrolls.timestep, unrolls.action))
    values, log_probs, intrinsic, _ = self.replay(params, unrolls)
    valid = masked.transitions(timestep.step_type[:-1])
    targets = self.targets(values, timestep, valid)
    # Equation 4: the gradient reaches the reward's parameters through log pi alone, by way of the inner
    # updates that `replay` has repeated.
    log_pi = jnp.take_along_axis(log_probs, action[:-1, :, None], -1)[..., 0]
    entropy = -jnp.sum(jnp.exp(log_probs) * log_probs, -1)
    policy_loss = masked.mean(-targets.advantages * log_pi, valid)
    baseline_loss = masked.mean(0.5 * jnp.square(targets.values - values[:-1]), valid)
    entropy_loss = masked.mean(-entropy, valid)
    loss = policy_loss + config.baseline_cost * baseline_loss + config.entropy_cost * entropy_loss
    metrics = {
      'loss': loss,
      'policy_loss': policy_loss,
      'baseline_loss': baseline_loss,
      'entropy': -entropy_loss,
      'value': masked.mean(values[:-1], valid),
      'target_value': masked.mean(targets.values, valid),
      'intrinsic_reward': masked.mean(intrinsic, valid),
      'intrinsic_reward_size': masked.mean(jnp.abs(intrinsic), valid),
    }
    return loss, jax.lax.stop_gradient(metrics)

  def targets(self, values: Array, timestep: Timestep, valid: Array) -> Targets:
    """Returns what the lifetime value and the outer gradient learn, `[T, B]`.

    Args:
      values: float32 `[T+1, B]`, of the lifetime so far.
      timestep: rewards, discounts and observations, `[T+1, B, ...]`; those of row t+1 belong to the
        transition t -> t+1.
      valid: bool `[T, B]`; false where no transition begins.
    """
    discounts = self._config.discount * timestep.discount[1:]
    if self._config.outer_objective == 'episode':
      discounts = discounts * (1.0 - lifetimes.ended(timestep.observation[1:]))
    # The unrolls are new, so every ratio pi/mu is 1.
    return vtrace(values, timestep.reward[1:], discounts, jnp.ones_like(discounts), valid)

  def update(
    self, state: IntrinsicRewardsState, unrolls: Unroll, probabilities: Array | None = None
  ) -> UpdateOutput:
    """Does one outer gradient step.

    Args:
      state: the learner state; its buffers may be donated.
      unrolls: fields are `[B, T+1, ...]`, extras as returned by `act`.
      probabilities: ignored; the unrolls are new.

    Returns:
      The next state, no priorities, and metrics: those of `loss`, `grad_norm` and `reward_grad_norm`
      (before clipping, of all parameters and of the reward's), `learning_rate`, and `policy_lag_mean`
      and `policy_lag_max`, in learner steps.
    """
    del probabilities
    gradients, metrics = jax.grad(self.loss, has_aux=True)(state.params, unrolls)
    params, opt_state, grad_norm = self._optimizer.step(gradients, state.opt_state, state.params)
    metrics = {
      **metrics,
      'grad_norm': grad_norm,
      'reward_grad_norm': jnp.asarray(optax.tree.norm(gradients.reward), jnp.float32),
      'learning_rate': self._optimizer.learning_rate(state.learner_steps),
      **policy_lag(state.learner_steps, unrolls.policy_version),
    }
    state = IntrinsicRewardsState(params, opt_state, state.learner_steps + 1)
    return UpdateOutput(state, None, metrics)

  def _log_probs(self, state: CoreState, timestep: Timestep) -> Array:
    """Returns the log probabilities of the actions on a row, float32 `[B, A]`."""
    features = lifetimes.features(timestep.observation)
    return jax.vmap(self.inner.policy.log_probs)(state.policy, features)
