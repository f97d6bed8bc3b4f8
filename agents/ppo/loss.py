"""The clipped loss of PPO (Schulman et al. 2017, equations 7 and 9)."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from agents import masked
from agents.actor_critic.distributions import Distribution
from agents.actor_critic.head import PolicyValue
from agents.ppo.config import PPOConfig
from agents.types import Array

# Beyond e^(+-this), about a million, a ratio is constant: its exponential and gradient must stay finite.
_MAX_LOG_RATIO = 14.0


def normalized(advantages: Array, valid: Array) -> Array:
  """Returns advantages minus their mean over their standard deviation, both over `valid` ones only."""
  centred = advantages - masked.mean(advantages, valid)
  # A float32 mean of equal numbers differs from them in the last bit, which the division would magnify.
  centred -= masked.mean(centred, valid)
  std = jnp.sqrt(masked.mean(jnp.square(centred), valid))
  return centred / (std + 1e-8)


def value_errors(value: Array, old_value: Array, target: Array, clip_value: float) -> Array:
  """Returns the squared errors of values, elementwise.

  With `clip_value` it is the larger of two: that of the value, and that of the value kept within
  `clip_value` of what it was before the update.
  """
  errors = jnp.square(value - target)
  if not clip_value:
    return errors
  near = old_value + jnp.clip(value - old_value, -clip_value, clip_value)
  return jnp.maximum(errors, jnp.square(near - target))


def ppo_loss(
  config: PPOConfig,
  distribution: Distribution,
  output: PolicyValue,
  draw: Array,
  log_mu: Array,
  valid: Array,
  old_value: Array,
  target: Array,
  advantage: Array,
) -> tuple[Array, dict[str, Array]]:
  """Adds the clipped policy loss, the baseline loss and the entropy loss of a minibatch.

  All are means over valid transitions. The ratio is to the policy mu that acted, also if mu is older
  than the parameters before the update.

  Args:
    config: clip_ratio, clip_value, normalize_advantages and the costs.
    distribution: the policy's distribution, with the logits as parameters.
    output: logits `[..., P]` and values `[...]`, of any leading shape.
    draw: `[..., A]` or `[...]`, sampled from mu.
    log_mu: float32 `[...]`, its log-probability under mu.
    valid: bool `[...]`; false where no transition begins.
    old_value: float32 `[...]`, V before the update; used with `clip_value`.
    target: float32 `[...]`, of V.
    advantage: float32 `[...]`.

  Returns:
    The loss, float32 `[]`, and metrics, float32 `[]` each. `approx_kl` estimates KL(mu || pi) by the
    mean of ratio - 1 - log ratio; `clip_fraction` is the share of ratios outside the clip.
  """
  mean = functools.partial(masked.mean, valid=valid)
  draw, log_mu = masked.kept(draw, valid), masked.kept(log_mu, valid)
  log_ratio = distribution.log_prob(output.logits, draw) - log_mu
  log_ratio = jnp.clip(log_ratio, -_MAX_LOG_RATIO, _MAX_LOG_RATIO)
  ratio = jnp.exp(log_ratio)  # pi/mu, through which the policy has its gradient.
  if config.normalize_advantages:
    advantage = normalized(advantage, valid)
  clipped = jnp.clip(ratio, 1.0 - config.clip_ratio, 1.0 + config.clip_ratio)
  errors = value_errors(output.value, old_value, target, config.clip_value)
  entropy = distribution.entropy(output.logits)

  # The lower of the two: a ratio beyond the clip gains nothing more, but one that has made things worse
  # keeps its whole gradient.
  policy_loss = mean(-jnp.minimum(ratio * advantage, clipped * advantage))
  baseline_loss = mean(0.5 * errors)
  entropy_loss = mean(-entropy)
  loss = policy_loss + config.baseline_cost * baseline_loss + config.entropy_cost * entropy_loss
  metrics = {
    'loss': loss,
    'policy_loss': policy_loss,
    'baseline_loss': baseline_loss,
    'entropy_loss': entropy_loss,
    'entropy': mean(entropy),
    'approx_kl': mean(ratio - 1.0 - log_ratio),
    'clip_fraction': mean((jnp.abs(ratio - 1.0) > config.clip_ratio).astype(np.float32)),
  }
  return loss, jax.lax.stop_gradient(metrics)


def explained_variance(value: Array, target: Array, valid: Array) -> Array:
  """Returns 1 - Var(target - value) / Var(target) over `valid`, `[]`: 1 is perfect, 0 is a constant."""

  def variance(x: Array) -> Array:
    return masked.mean(jnp.square(x - masked.mean(x, valid)), valid)

  return 1.0 - variance(target - value) / jnp.maximum(variance(target), 1e-8)
