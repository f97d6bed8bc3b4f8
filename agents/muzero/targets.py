"""Targets of MuZero: n-step values, rewards and search policies after each start of an unroll.

An unroll of L = P + K + n rows has the P starts t = 0 .. P-1. From start t the model is unrolled K
steps, to the rows t .. t+K, and the value of each bootstraps n rows later, still within the unroll.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from agents import masked
from agents.muzero.config import MuZeroConfig
from agents.returns import n_step_returns
from agents.types import LAST, Array, Timestep


class Targets(NamedTuple):
  """What is learned at step k = 0 .. K from start t; `*_mask` is false where nothing is."""

  reward: Array  # float32 `[B, P, K]`, of steps 1 .. K; the root predicts none.
  reward_mask: Array  # bool `[B, P, K]`.
  value: Array  # float32 `[B, P, K+1]`, in units of return.
  value_mask: Array  # bool `[B, P, K+1]`.
  policy: Array  # float32 `[B, P, K+1, A]`.
  policy_mask: Array  # bool `[B, P, K+1]`.


def windows(config: MuZeroConfig, x: Array, steps: int) -> Array:
  """Returns the `steps` rows from each start on, `[B, P, steps, ...]`, of rows `[B, R, ...]`."""
  starts = jnp.arange(config.unroll_length)
  return x[:, starts[:, None] + jnp.arange(steps)]


def n_step_values(config: MuZeroConfig, timestep: Timestep, values: Array) -> Array:
  """Returns z_t = sum_{i<n} gamma^i u_{t+1+i} + gamma^n nu_{t+n} (Unplugged, section 2), `[B, L-1]`.

  See `n_step_returns` for the ends of episodes. It has fewer than n rewards in the last n-1 rows.

  Args:
    config: discount and n_step.
    timestep: step types, raw rewards and discounts, `[B, L]`; observations are not used.
    values: float32 `[B, L]`, nu, in units of return.
  """
  values, step_type, reward, discount = jax.tree.map(
    jnp.transpose, (values, timestep.step_type, timestep.reward, timestep.discount)
  )
  discounts = config.discount * discount[1:]
  valid = masked.transitions(step_type[:-1])
  return n_step_returns(values, reward[1:], discounts, valid, config.n_step).T


def make_targets(
  config: MuZeroConfig, timestep: Timestep, values: Array, policies: Array
) -> Targets:
  """Returns the targets of a batch of unrolls, without gradients.

  Nothing is learned from a start at a LAST row. A row after the end of the episode of its start
  belongs to another one. After a termination the model is to be absorbed instead, with
  rewards and values of 0 and any policy; the terminal row itself has its reward. After a truncation
  nothing is known, so all is masked; the truncated row has its reward, its policy, and the value that
  it bootstraps from.

  Args:
    config: of the unrolls.
    timestep: as in `n_step_values`.
    values: as in `n_step_values`.
    policies: float32 `[B, P + K or more, A]`, of the searches.
  """
  length = config.num_unroll_steps + 1
  returns = windows(config, n_step_values(config, timestep, values), length)
  is_last = windows(config, timestep.step_type == LAST, length)
  ended = jnp.cumsum(is_last, axis=-1)
  begins = ~is_last[..., :1]
  within = (ended - is_last == 0) & begins
  terminal = is_last & within & (windows(config, timestep.discount, length) == 0.0)
  absorbed = jnp.cumsum(terminal, axis=-1) - terminal > 0
  known = within | absorbed
  reward = jnp.where(within, windows(config, timestep.reward, length), 0.0)
  value = jnp.where(within & ~terminal, returns, 0.0)
  return jax.lax.stop_gradient(
    Targets(
      reward=reward[..., 1:],
      reward_mask=known[..., 1:],
      value=value,
      value_mask=known,
      policy=windows(config, policies, length),
      policy_mask=within & ~terminal,
    )
  )
