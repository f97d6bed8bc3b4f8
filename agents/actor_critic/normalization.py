"""What the options `normalize_observations` and `normalize_rewards` do in an update.

Observations. An update learns with the statistics that its own parameters acted with, and adds the batch
to them afterwards. So replaying an unroll of these parameters gives the recorded logits. Rows of older
parameters were chosen with older statistics. They are stale data like any other: pi/mu corrects for
them. The first batch is learned with its own statistics, since there are none before it. Each row counts
once: the last row of an unroll, which only bootstraps, is the first of the next unroll.

Rewards. They are divided by the standard deviation of the discounted return R_t = r_t + gamma R_{t-1} of
an episode so far, as by Gymnasium's NormalizeReward (Engstrom et al. 2020, "Implementation matters in
deep policy gradients", section 3). R_t is part of the core state, so an unroll knows the one that it
begins with. The value head predicts returns of divided rewards, and follows a change of the deviation by
learning. The more rows there are so far, the less an update changes it. The reward that a core receives
stays raw.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from agents import spaces
from agents.actor_critic.config import PolicyConfig
from agents.axes import swapped
from agents.networks import observation_statistics, statistics
from agents.networks.statistics import LIMIT, OBSERVATIONS, RETURNS
from agents.types import FIRST, Array, Nest, Timestep, Unroll

# The part of the core state that holds R_t, float32 `[B]`.
DISCOUNTED_RETURN = 'discounted_return'


def initial(config: PolicyConfig, observation_spec: Nest) -> Nest:
  """Returns what the options add to new parameters; `{}` without them."""
  added = {}
  if config.normalize_observations:
    added[OBSERVATIONS] = observation_statistics.initial(spaces.seen(observation_spec))
  if getattr(config, 'normalize_rewards', False):
    added[RETURNS] = statistics.initial(())
  return added


def split(params: Nest) -> tuple[Nest, Nest]:
  """Returns the weights, for gradients and optimizer, and the statistics; their union is `params`."""
  known = {name: params[name] for name in (OBSERVATIONS, RETURNS) if name in params}
  return {name: value for name, value in params.items() if name not in known}, known


def of_batch(known: Nest, unrolls: Unroll, discount: float) -> tuple[Nest, Nest]:
  """Returns the statistics to learn from a batch with, and those to act with after it.

  Args:
    known: the statistics of `split`.
    unrolls: fields are `[B, T+1, ...]`.
    discount: gamma.
  """
  used, after = {}, {}
  if OBSERVATIONS in known:
    before, seen = known[OBSERVATIONS], spaces.seen(unrolls.timestep.observation)
    rows = jax.tree.map(lambda x: x[:, :-1], seen)
    after[OBSERVATIONS] = observation_statistics.merged(before, rows)
    used[OBSERVATIONS] = observation_statistics.or_first(before, after[OBSERVATIONS])
  if RETURNS in known:
    returns = discounted_returns(unrolls, discount)[:, 1:]
    arrived = unrolls.timestep.step_type[:, 1:] != FIRST
    used[RETURNS] = after[RETURNS] = statistics.merged(known[RETURNS], returns, arrived)
  return used, after


def next_return(discounted_return: Array, timestep: Timestep, discount: float) -> Array:
  """Returns R_t, float32 `[B]`, after a row `[B]`; it is 0 in FIRST rows."""
  following = timestep.reward + discount * discounted_return
  return jnp.where(timestep.step_type == FIRST, jnp.zeros_like(following), following)


def without_return(core_state: Nest) -> Nest:
  """Returns a core state without R_t, as the network takes it."""
  return {name: part for name, part in core_state.items() if name != DISCOUNTED_RETURN}


def discounted_returns(unrolls: Unroll, discount: float) -> Array:
  """Returns R_t in every row of unrolls, float32 `[B, T+1]`."""

  def step(before: Array, row: Timestep) -> tuple[Array, Array]:
    after = next_return(before, row, discount)
    return after, after

  rows = swapped(unrolls.timestep._replace(observation=None))
  return jnp.swapaxes(jax.lax.scan(step, unrolls.core_state[DISCOUNTED_RETURN], rows)[1], 0, 1)


def normalized_rewards(params: Nest, reward: Array) -> Array:
  """Returns rewards over the deviation of R_t, clipped; rewards themselves without the option."""
  if RETURNS not in params:
    return reward
  return jnp.clip(reward / statistics.standard_deviation(params[RETURNS]), -LIMIT, LIMIT)


def metrics(params: Nest) -> dict[str, Array]:
  """Returns `return_std`, by which rewards were divided; `{}` without the option."""
  if RETURNS not in params:
    return {}
  return {'return_std': statistics.standard_deviation(params[RETURNS])}
