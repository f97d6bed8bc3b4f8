"""A lifetime of the inner policy, row by row: what acting does, and what the outer update repeats.

Within a trajectory of m transitions the inner policy theta is constant. Its policy gradient on the
return of intrinsic rewards with discount gamma_bar, cut where inner episodes or the trajectory end, is

    sum_k r_{k+1} e_k,    e_k = gamma_bar (1 - ended_k) e_{k-1} + grad log pi_theta(a_k | s_k),

since reward r_{k+1} is part of the return of each earlier action of its inner episode. So the sum and
the trace e are all that a trajectory leaves behind.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from agents import lifetimes
from agents.intrinsic_rewards.config import IntrinsicRewardsConfig
from agents.intrinsic_rewards.networks import InnerPolicy, LifetimeHead
from agents.networks import core_state
from agents.types import FIRST, Array, Nest, Timestep


class Params(NamedTuple):
  """What the outer update learns."""

  reward: Nest  # eta; {} with a reward that is not learned.
  value: Nest  # phi, of the lifetime value.


class CoreState(NamedTuple):
  """A lifetime before a row. Every leaf is `[B, ...]`."""

  policy: Nest  # theta.
  gradient: Nest  # Of the running trajectory so far.
  trace: Nest  # e.
  length: Array  # int32, transitions of the running trajectory.
  features: Array  # float32 `[B, F]`, of the previous row; 0 before a lifetime.
  action: Array  # int32, of the previous row; -1 before a lifetime.
  reward_memory: Array  # float32 `[B, H]`; `[B, 0]` without memory.
  value_memory: Array  # float32 `[B, H]`.
  visits: (
    Array  # float32 `[B, F, A]`, of features and action; `[B, 0, 0]` where nothing counts them.
  )


class Consumed(NamedTuple):
  """What a row says, after it was consumed."""

  value: Array  # float32 `[B]`, of the lifetime so far.
  reward: Array  # float32 `[B]`, intrinsic, of the transition into the row.


class InnerLoop:
  """The transition function of lifetimes, in batches. It is pure.

  Attributes:
    policy: the inner policy.
  """

  def __init__(self, config: IntrinsicRewardsConfig, num_features: int, num_actions: int):
    """Initialises the modules.

    Args:
      config: of the agent.
      num_features: F.
      num_actions: A.
    """
    self.policy = InnerPolicy(num_features, config.inner_sizes, num_actions, config.inner_scale)
    self._config = config
    self._num_features = num_features
    self._num_actions = num_actions
    with_memory = config.reward_memory == 'gru'
    self._reward = LifetimeHead(config.gru_size, with_memory, bounded=True)
    self._value = LifetimeHead(config.gru_size)

  def init(self, key: Array) -> Params:
    """Returns new parameters."""
    reward_key, value_key = jax.random.split(key)
    state = self.initial(1)
    inputs = jnp.zeros((1, 2 * self._num_features + self._num_actions + 2))
    learned = self._config.inner_reward == 'learned'
    return Params(
      self._reward.init(reward_key, state.reward_memory, inputs) if learned else {},
      self._value.init(value_key, state.value_memory, inputs),
    )

  def initial(self, batch_size: int) -> CoreState:
    """Returns the state before a lifetime, whose first row then draws the policy."""
    config, features, actions = self._config, self._num_features, self._num_actions
    policy = jax.eval_shape(self.policy.draw, jax.eval_shape(lambda: jax.random.key(0)))

    def zeros() -> Nest:
      return jax.tree.map(lambda x: jnp.zeros((batch_size, *x.shape), jnp.float32), policy)

    remembers = config.inner_reward == 'learned' and config.reward_memory == 'gru'
    counts = (features, actions) if config.inner_reward == 'count' else (0, 0)
    return CoreState(
      policy=zeros(),
      gradient=zeros(),
      trace=zeros(),
      length=jnp.zeros(batch_size, jnp.int32),
      features=jnp.zeros((batch_size, features), jnp.float32),
      action=jnp.full(batch_size, -1, jnp.int32),
      reward_memory=jnp.zeros((batch_size, config.gru_size if remembers else 0), jnp.float32),
      value_memory=jnp.zeros((batch_size, config.gru_size), jnp.float32),
      visits=jnp.zeros((batch_size, *counts), jnp.float32),
    )

  def consume(
    self,
    params: Params,
    state: CoreState,
    timestep: Timestep,
    policy_keys: Array,
    reward: Array | None = None,
  ) -> tuple[CoreState, Consumed]:
    """Takes the transition into a row, and updates the policy after the last of a trajectory.

    Args:
      params: reward and value.
      state: before the row.
      timestep: fields are `[B, ...]`. A FIRST row begins a lifetime.
      policy_keys: uint32 `[B, ...]`, data of the keys by which a FIRST row draws the policy.
      reward: float32 `[B]`, intrinsic, in place of that of `params`; None for that.

    Returns:
      The state, whose policy acts on the row, and the value and the intrinsic reward.
    """
    config, state = self._config, self._begun(state, timestep.step_type == FIRST, policy_keys)
    features = lifetimes.features(timestep.observation)
    ended = lifetimes.ended(timestep.observation)
    before = state.features, jax.nn.one_hot(state.action, self._num_actions, dtype=features.dtype)
    extrinsic = timestep.reward[:, None]
    inputs = jnp.concatenate([*before, ended[:, None], features, extrinsic], -1)
    value_memory, value = self._value.apply(params.value, state.value_memory, inputs)
    own, reward_memory = self._intrinsic(params, state, timestep.reward, inputs)
    reward = own if reward is None else reward
    gradient = jax.tree.map(lambda g, e: g + _of(reward, e) * e, state.gradient, state.trace)
    length = jnp.where(timestep.step_type == FIRST, 0, state.length + 1)
    due = length == config.inner_period
    policy = jax.tree.map(
      lambda theta, g: jnp.where(_of(due, g), theta + config.inner_learning_rate * g, theta),
      state.policy,
      gradient,
    )
    cut = due | (ended > 0)
    state = state._replace(
      policy=policy,
      gradient=jax.tree.map(lambda g: jnp.where(_of(due, g), 0.0, g), gradient),
      trace=jax.tree.map(lambda e: jnp.where(_of(cut, e), 0.0, e), state.trace),
      length=jnp.where(due, 0, length),
      reward_memory=reward_memory,
      value_memory=value_memory,
    )
    return state, Consumed(value, reward)

  def record(self, state: CoreState, observation: Array, action: Array) -> CoreState:
    """Returns the state before the next row, after an action, int32 `[B]`, on this one."""
    features = lifetimes.features(observation)
    scores = jax.vmap(self.policy.score)(state.policy, features, action)
    trace = jax.tree.map(lambda e, s: self._config.inner_discount * e + s, state.trace, scores)
    visits = state.visits
    if visits.size:
      one_hot = jax.nn.one_hot(action, self._num_actions)
      visits = visits + features[:, :, None] * one_hot[:, None, :]
    return state._replace(trace=trace, features=features, action=action, visits=visits)

  def _begun(self, state: CoreState, is_first: Array, policy_keys: Array) -> CoreState:
    """Returns the state with a new lifetime where the row is FIRST."""
    initial = self.initial(1)

    def begin() -> CoreState:
      drawn = jax.vmap(self.policy.draw)(jax.random.wrap_key_data(policy_keys))
      begun: CoreState = core_state.reset(state, initial._replace(policy=drawn), is_first)
      return begun

    return jax.lax.cond(jnp.any(is_first), begin, lambda: state)

  def _intrinsic(
    self, params: Params, state: CoreState, reward: Array, inputs: Array
  ) -> tuple[Array, Array]:
    """Returns the intrinsic rewards, `[B]`, and the memory of the reward."""
    config = self._config
    if config.inner_reward == 'learned':
      if not config.reward_sees_extrinsic:
        inputs = inputs.at[:, -1].set(0.0)
      memory, own = self._reward.apply(params.reward, state.reward_memory, inputs)
      return own, memory
    if config.inner_reward == 'count':
      action = jnp.maximum(state.action, 0)
      visits = jax.vmap(lambda visits, features, a: features @ visits[:, a])(
        state.visits, state.features, action
      )
      reward = reward + config.count_bonus / jnp.sqrt(jnp.maximum(visits, 1.0))
    return reward, state.reward_memory


def _of(x: Array, like: Array) -> Array:
  """Returns `[B]` as `[B, 1, ..]`, to broadcast against a leaf."""
  return x.reshape(x.shape + (1,) * (like.ndim - x.ndim))
