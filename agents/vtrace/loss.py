"""The V-trace actor-critic loss (Espeholt et al. 2018, section 4.2)."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from agents import masked
from agents.actor_critic.distributions import Distribution
from agents.actor_critic.head import PolicyValue
from agents.metrics import mean_rho
from agents.rewards import scaled_rewards
from agents.types import Array, Timestep
from agents.vtrace.config import VTraceConfig
from agents.vtrace.targets import Targets, vtrace


def vtrace_targets(
  config: VTraceConfig, values: Array, rhos: Array, timestep: Timestep, valid: Array
) -> Targets:
  """Returns the targets of V-trace with the options of a config.

  Args:
    config: rho_bar, c_bar, vtrace_lambda, discount, reward_scale and max_abs_reward.
    values: `[T+1, B]`, V of each row.
    rhos: `[T, B]`, pi/mu, unclipped.
    timestep: rewards before `reward_scale` and discounts, `[T+1, B]`; the rest is not used.
    valid: bool `[T, B]`; false where no transition begins.
  """
  return vtrace(
    values,
    # Reward and discount of the transition t -> t+1 arrived with row t+1.
    scaled_rewards(config, timestep.reward[1:]),
    config.discount * timestep.discount[1:],
    rhos,
    valid,
    rho_bar=config.rho_bar,
    c_bar=config.c_bar,
    lambda_=config.vtrace_lambda,
  )


def vtrace_loss(
  config: VTraceConfig,
  distribution: Distribution,
  output: PolicyValue,
  behaviour_logits: Array,
  draw: Array,
  timestep: Timestep,
  make_targets: Callable[[Array, Array, Timestep, Array], Targets] | None = None,
) -> tuple[Array, dict[str, Array]]:
  """Sums the policy-gradient, baseline and entropy losses of a batch of unrolls.

  Transitions out of LAST rows are excluded from the loss, its gradient, the mean over transitions and
  the metrics. The last row only bootstraps, without gradient.

  Args:
    config: rho_bar, c_bar, vtrace_lambda, discount, the costs, reward_scale, max_abs_reward and
      loss_reduction.
    distribution: the policy's distribution, with the logits as parameters.
    output: the learner's logits `[T+1, B, P]` and values `[T+1, B]`.
    behaviour_logits: float32 `[T+1, B, P]`, of the policy mu that acted; the last row is not used.
    draw: `[T+1, B, ...]`, sampled from mu; the last row is not used.
    timestep: step types, rewards before `reward_scale` and discounts, `[T+1, B]`; observations are
      not used.
    make_targets: makes targets of values, ratios, timestep and valid; None for `vtrace_targets`.

  Returns:
    The loss, float32 `[]`, and metrics, float32 `[]` each. `policy_loss`, `baseline_loss` and
    `entropy_loss` are reduced like the loss, before their costs. The others are means over transitions;
    `rho` is the mean of pi/mu clipped at 1e6.
  """
  valid = masked.transitions(timestep.step_type[:-1])
  mean = functools.partial(masked.mean, valid=valid)
  reduce = functools.partial(masked.reduced, valid=valid, reduction=config.loss_reduction)
  logits, values, draw = output.logits[:-1], output.value, masked.kept(draw[:-1], valid)
  log_pi = distribution.log_prob(logits, draw)
  log_mu = distribution.log_prob(behaviour_logits[:-1], draw)
  # Both have the gradient of log pi: a term of the loss may be built from them, such as
  # reduce(-log_rhos) for KL(mu || pi).
  log_rhos = log_pi - log_mu
  rhos = jnp.exp(log_rhos)
  make_targets = make_targets or functools.partial(vtrace_targets, config)
  # The gradients of section 4.2 are those of V(x_s) and log pi(a_s) alone. Ratios and values within
  # targets and advantages are constants: otherwise the policy would also learn to change the weights of
  # its own actions, and the targets would move towards V(x_s) as well as V(x_s) towards them.
  targets = make_targets(*jax.lax.stop_gradient((values, rhos)), timestep, valid)
  errors = targets.values - values[:-1]
  entropy = distribution.entropy(logits)

  # Ascends rho_s A_s grad log pi(a_s | x_s); the clipped rho_s is within the advantages.
  policy_loss = reduce(-targets.advantages * log_pi)
  # Descends towards v_s. The last row has no target of its own: it only bootstraps.
  baseline_loss = reduce(0.5 * jnp.square(errors))
  # Keeps the policy from collapsing before it has tried enough.
  entropy_loss = reduce(-entropy)
  loss = policy_loss + config.baseline_cost * baseline_loss + config.entropy_cost * entropy_loss
  metrics = {
    'loss': loss,
    'policy_loss': policy_loss,
    'baseline_loss': baseline_loss,
    'entropy_loss': entropy_loss,
    'entropy': mean(entropy),
    'value': mean(values[:-1]),
    'target_value': mean(targets.values),
    'advantage': mean(targets.advantages),
    'rho': mean_rho(rhos, valid),
    'rho_clipped': mean((rhos > config.rho_bar).astype(jnp.float32)),
    'behaviour_kl': mean(-log_rhos),
  }
  return loss, jax.lax.stop_gradient(metrics)
