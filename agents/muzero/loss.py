"""The loss of MuZero (equation 1 and appendix G) on an unrolled model."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from agents import masked
from agents.axes import swapped
from agents.muzero.categorical import expectation, two_hot
from agents.muzero.config import MuZeroConfig
from agents.muzero.model import Model
from agents.muzero.targets import Targets
from agents.priorities import unroll_priorities
from agents.types import Array, Nest


class Unrolled(NamedTuple):
  """The model's logits at step k = 0 .. K from each of N starts."""

  policy: Array  # float32 `[N, K+1, A]`.
  value: Array  # float32 `[N, K+1, num_bins]`.
  reward: Array  # float32 `[N, K, num_bins]`, of steps 1 .. K.


def halve_gradient(x: Array) -> Array:
  """Returns `x`, with half of its gradient."""
  return 0.5 * x + 0.5 * jax.lax.stop_gradient(x)


def unroll_model(model: Model, params: Nest, observation: Nest, action: Array) -> Unrolled:
  """Unrolls the model from N observations; the gradient into each state of the dynamics is halved.

  Args:
    model: the networks.
    params: of the networks.
    observation: `[N, ...]`, with stacked frames.
    action: int `[N, K]`, as executed.
  """
  state = model.apply(params, observation, method='represent')
  root: Any = model.apply(params, state, method='predict')

  def step(state: Array, action: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    state, reward = model.apply(params, halve_gradient(state), action, method='dynamics')
    return state, (*model.apply(params, state, method='predict'), reward)

  _, outputs = jax.lax.scan(step, state, action.T)
  policy, value, reward = swapped(outputs)
  policy = jnp.concatenate([root.policy_logits[:, None], policy], axis=1)
  value = jnp.concatenate([root.value_logits[:, None], value], axis=1)
  return Unrolled(policy, value, reward)


def muzero_loss(
  config: MuZeroConfig, unrolled: Unrolled, targets: Targets, weights: Array
) -> tuple[Array, tuple[Array, dict[str, Array]]]:
  """Returns the mean loss over unrolls and starts.

  The loss of a start is the cross-entropies of policy and value at the root, plus 1/K of those of
  policy, value and reward at the K steps after it. The mean divides by B P, so a start that is
  masked weighs nothing, and an unroll with fewer starts weighs less.

  Args:
    config: value_cost, and what the priorities need.
    unrolled: the logits of the B P starts, batch major.
    targets: of the B unrolls.
    weights: float32 `[B]`, the importance weights.

  Returns:
    The loss, float32 `[]`; then, without gradients, the priorities, float32 `[B]`, and metrics,
    float32 `[]` each, unweighted. `value`, `target_value` and `td_error` (of absolute errors)
    are of the roots, in units of return. `target_entropy` is that of the policies at the roots, in nats.
  """
  batch = targets.value.shape[:2]
  policy, value, reward = jax.tree.map(lambda x: x.reshape(*batch, *x.shape[1:]), unrolled)
  steps = config.num_unroll_steps
  scale = jnp.full(steps + 1, 1.0 / steps).at[0].set(1.0)

  def summed(logits: Array, labels: Array, mask: Array, scale: Array) -> Array:
    loss = optax.softmax_cross_entropy(logits, masked.kept(labels, mask))
    return jnp.sum(jnp.where(mask, scale * loss, 0.0), axis=(1, 2)) / batch[1]

  losses = {
    'policy_loss': summed(policy, targets.policy, targets.policy_mask, scale),
    'value_loss': summed(value, two_hot(config, targets.value), targets.value_mask, scale),
    'reward_loss': summed(reward, two_hot(config, targets.reward), targets.reward_mask, scale[1:]),
  }
  total = losses['policy_loss'] + config.value_cost * losses['value_loss'] + losses['reward_loss']
  loss = jnp.mean(weights * total)

  valid = targets.policy_mask[..., 0]
  mean = functools.partial(masked.mean, valid=valid)
  root, target = expectation(config, value[..., 0, :]), targets.value[..., 0]
  labels = targets.policy[..., 0, :]

  priority = priorities(config, root, target, valid)
  metrics = {
    'loss': loss,
    **{name: jnp.mean(x) for name, x in losses.items()},
    'value': mean(root),
    'target_value': mean(target),
    'td_error': mean(jnp.abs(target - root)),
    'target_entropy': mean(-jnp.sum(jax.scipy.special.xlogy(labels, labels), axis=-1)),
    'priority_mean': jnp.mean(priority),
    'priority_max': jnp.max(priority),
    'importance_weight_mean': jnp.mean(weights),
  }
  return loss, jax.lax.stop_gradient((priority, metrics))


def priorities(config: MuZeroConfig, value: Array, target: Array, valid: Array) -> Array:
  """Returns the priorities of unrolls, float32 `[B]`, without gradients, from |nu - z| of each start.

  MuZero samples single states in proportion to |nu - z|. An unroll has the mix of the largest and the
  mean of its starts, as in R2D2.

  Args:
    config: priority_eta and priority_floor.
    value: float32 `[B, P]`, nu, in units of return.
    target: float32 `[B, P]`, z.
    valid: bool `[B, P]`; false where a start is at a LAST row.
  """
  errors = (target - value).T
  eta, floor = config.priority_eta, config.priority_floor
  return jax.lax.stop_gradient(unroll_priorities(errors, valid.T, eta=eta, floor=floor))
