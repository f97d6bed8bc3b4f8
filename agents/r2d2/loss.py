"""The R2D2 loss and priorities (Kapturowski et al. 2019, section 2.3)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from agents import masked
from agents.priorities import unroll_priorities
from agents.q_learning.values import select
from agents.r2d2.config import R2D2Config
from agents.r2d2.targets import double_q_targets
from agents.types import Array, Timestep

# Makes targets, `[U, B]`, of q_online, q_target, action, timestep and valid.
MakeTargets = Callable[[Array, Array, Array, Timestep, Array], Array]


class TDErrors(NamedTuple):
  """TD errors; index t is the transition t -> t+1, t = 0 .. U-1. Values are in the range of h."""

  errors: Array  # `[U, B]`, target minus Q; 0 where invalid.
  q_values: Array  # `[U, B]`, of the actions taken.
  targets: Array  # `[U, B]`, without gradients.
  valid: Array  # bool `[U, B]`; false where row t is LAST.


def n_step_targets(
  config: R2D2Config,
  q_online: Array,
  q_target: Array,
  action: Array,
  timestep: Timestep,
  valid: Array,
) -> Array:
  """Returns the targets of R2D2, `[U, B]`, in the range of h; the arguments are as in `td_errors`."""
  del action
  return double_q_targets(
    q_online,
    q_target,
    # Reward and discount of the transition t -> t+1 arrived with row t+1.
    timestep.reward[1:],
    config.discount * timestep.discount[1:],
    valid,
    n_step=config.n_step,
    rescale_epsilon=config.rescale_epsilon,
  )


def td_errors(
  config: R2D2Config,
  q_online: Array,
  q_target: Array,
  action: Array,
  timestep: Timestep,
  make_targets: MakeTargets | None = None,
) -> TDErrors:
  """Computes the errors between Q of the actions taken and its targets.

  Args:
    config: discount, n_step and rescale_epsilon.
    q_online: float32 `[U+1, B, A]`; gradients flow into the actions taken, valid rows only.
    q_target: float32 `[U+1, B, A]`.
    action: int `[U+1, B]`; the last row is not used.
    timestep: step types, raw rewards and discounts, `[U+1, B]`; observations are not used.
    make_targets: makes the targets; None for `n_step_targets`.
  """
  valid = masked.transitions(timestep.step_type[:-1])
  make_targets = make_targets or functools.partial(n_step_targets, config)
  # Targets are constants in Q-learning, though they depend on the online network, which chooses the
  # actions that they bootstrap from: Q moves towards them, and they do not move towards Q.
  targets = make_targets(*jax.lax.stop_gradient((q_online, q_target)), action, timestep, valid)
  q_values = select(q_online[:-1], action[:-1])
  return TDErrors(jnp.where(valid, targets - q_values, 0.0), q_values, targets, valid)


def priorities(config: R2D2Config, td: TDErrors) -> Array:
  """Returns the priorities of unrolls, float32 `[B]`, without gradients."""
  floor, eta = config.priority_floor, config.priority_eta
  return jax.lax.stop_gradient(unroll_priorities(td.errors, td.valid, eta=eta, floor=floor))


def r2d2_loss(
  config: R2D2Config,
  q_online: Array,
  q_target: Array,
  action: Array,
  timestep: Timestep,
  weights: Array,
  make_targets: MakeTargets | None = None,
) -> tuple[Array, tuple[Array, dict[str, Array]]]:
  """Sums half the squared errors of each unroll and takes the weighted mean over the batch.

  The sum is over valid transitions: those out of LAST rows are excluded, and an unroll with fewer valid
  ones weighs less. The mean divides by B, not by the sum of weights. Both follow SEED RL.

  Args:
    config: as in `td_errors`, with priority_eta and priority_floor.
    q_online: as in `td_errors`.
    q_target: as in `td_errors`.
    action: as in `td_errors`.
    timestep: as in `td_errors`.
    weights: float32 `[B]`, the importance weights.
    make_targets: as in `td_errors`.

  Returns:
    The loss, float32 `[]`; then, without gradients, the priorities, float32 `[B]`, and metrics,
    float32 `[]` each. `td_error` (of absolute errors), `q_value` (of the actions taken)
    and `target_value` are in the range of h, means over transitions, unweighted.
  """
  td = td_errors(config, q_online, q_target, action, timestep, make_targets)
  loss = jnp.mean(weights * jnp.sum(0.5 * jnp.square(td.errors), axis=0))
  mean = functools.partial(masked.mean, valid=td.valid)
  priority = priorities(config, td)
  metrics = {
    'loss': loss,
    'td_error': mean(jnp.abs(td.errors)),
    'q_value': mean(td.q_values),
    'target_value': mean(td.targets),
    'priority_mean': jnp.mean(priority),
    'priority_max': jnp.max(priority),
    'importance_weight_mean': jnp.mean(weights),
    'importance_weight_min': jnp.min(weights),
  }
  return loss, jax.lax.stop_gradient((priority, metrics))
