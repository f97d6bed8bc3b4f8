"""The core state, which a network carries from row to row within an episode.

It is a dict of the parts that the network needs; `{}` for a memoryless network:

    lstm         (c, h), float32 `[B, core_size]` each: the state of the LSTM, as `agents.networks.cores`
                 has it, or
    gru          (h,), of the GRU, or
    lru          (Re h, Im h), of the LRU.
    prev_action  the action executed in the previous row: int32 `[B]`, or `[B, K]` for several at
                 once, -1 at the start of an episode (discrete), or float32 `[B, ...]`, 0 at the start
                 (continuous).
    frames       `[B, frame_stack - 1, ...]` per leaf of the observation, in its dtype: the previous
                 observations of this episode, oldest first, zeros before its first.
"""

from __future__ import annotations

import dm_env.specs
import jax
import jax.numpy as jnp

from agents.networks.config import NetworkConfig
from agents.spaces import num_values
from agents.types import Array, Nest


def initial(
  config: NetworkConfig,
  observation_spec: Nest,
  action_spec: dm_env.specs.Array,
  batch_size: int,
) -> dict[str, Nest]:
  """Returns the core state at the start of an episode, `[batch_size, ...]` per leaf.

  The core itself adds its part.
  """
  state: dict[str, Nest] = {}
  if config.core != 'none':
    state['prev_action'] = no_action(action_spec, batch_size)
  if config.frame_stack > 1:
    before = batch_size, config.frame_stack - 1
    state['frames'] = jax.tree.map(
      lambda spec: jnp.zeros((*before, *spec.shape), spec.dtype), observation_spec
    )
  return state


def reset(core_state: Nest, initial_state: Nest, is_first: Array) -> Nest:
  """Resets the core state where a new episode begins.

  Args:
    core_state: leaves `[*P, ...]`, P being the shape of `is_first`.
    initial_state: the same nest, with leaves that broadcast against those of `core_state`.
    is_first: bool `[*P]`, usually `[B]`.

  Returns:
    `where(is_first, initial_state, core_state)` leaf by leaf, in the dtypes of `core_state`.
  """

  def reset_leaf(value: Array, start: Array) -> Array:
    mask = is_first.reshape(is_first.shape + (1,) * (value.ndim - is_first.ndim))
    return jnp.where(mask, jnp.asarray(start, value.dtype), value)

  return jax.tree.map(reset_leaf, core_state, initial_state)


def no_action(action_spec: dm_env.specs.Array, batch_size: int) -> Array:
  """Returns the `prev_action` of rows without a previous action, `[batch_size, ...]`."""
  if num_values(action_spec) is not None:
    return jnp.full((batch_size, *action_spec.shape), -1, jnp.int32)
  return jnp.zeros((batch_size, *action_spec.shape), jnp.float32)


def encode_action(action_spec: dm_env.specs.Array, action: Array) -> Array:
  """Returns actions `[T, B, ...]` as float32 `[T, B, n]`: one-hot (-1 is all zeros) or flattened.

  Several discrete actions are one-hot each, with as many places as the one with the most values.
  """
  if (sizes := num_values(action_spec)) is not None:
    one_hot = jax.nn.one_hot(action, max(sizes), dtype=jnp.float32)
    return one_hot.reshape(*action.shape[:2], -1)
  return action.reshape(*action.shape[:2], -1).astype(jnp.float32)
