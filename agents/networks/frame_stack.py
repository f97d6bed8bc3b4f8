"""Frame stacking inside the network: rows, requests and replay carry single frames."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from agents.types import Array, Nest


def stack_frames(frames: Nest, observation: Nest, is_first: Array) -> tuple[Nest, Nest]:
  """Stacks each observation with the `k - 1` before it in its episode.

  Args:
    frames: `[B, k-1, ...]` per leaf, the observations before row 0, oldest first; zeros before the
      episode.
    observation: `[T, B, ...]` per leaf, same dtypes.
    is_first: bool `[T, B]`.

  Returns:
    stacked: `[T, B, ..., k]` per leaf, same dtypes, newest last; zeros before the FIRST row.
    frames: `[B, k-1, ...]` per leaf, the same state after row T-1.
  """
  both = jax.tree.map(lambda past, row: _stack(past, row, is_first), frames, observation)
  return jax.tree.transpose(jax.tree.structure(observation), None, both)


def _stack(frames: Array, observation: Array, is_first: Array) -> tuple[Array, Array]:
  """Does `stack_frames` for one array."""
  depth, num_rows = frames.shape[1] + 1, observation.shape[0]
  history = jnp.concatenate([jnp.moveaxis(frames, 1, 0), observation])  # Row t is at t + k - 1.
  # A frame belongs in the stack of row t if no FIRST lies between them.
  episode = jnp.cumsum(is_first, axis=0, dtype=jnp.int32)
  before = jnp.zeros((depth - 1, *episode.shape[1:]), jnp.int32)
  episodes = jnp.concatenate([before, episode])
  pixels = (1,) * (observation.ndim - 2)

  def masked(start: int, rows: int, current: Array) -> Array:
    same = episodes[start : start + rows] == current
    window = history[start : start + rows]
    # A Python 0 would turn bool into int32.
    return jnp.where(same.reshape(*same.shape, *pixels), window, jnp.zeros((), window.dtype))

  stacked = jnp.stack([masked(lag, num_rows, episode) for lag in range(depth)], axis=-1)
  return stacked, jnp.moveaxis(masked(num_rows, depth - 1, episode[-1]), 0, 1)


def frames_before_rows(frames: Nest, observation: Nest, is_first: Array) -> Nest:
  """Returns the state `frames` before each row, `[T, B, k-1, ...]`, zeros before the row's episode.

  `stack_frames` maps the state before a row and the row alone to the stack that it has in the unroll.

  Args:
    frames: `[B, k-1, ...]` per leaf, before row 0.
    observation: `[T, B, ...]` per leaf, same dtypes.
    is_first: bool `[T, B]`.
  """
  stacked, _ = stack_frames(frames, observation, is_first)
  return jax.tree.map(lambda x: jnp.moveaxis(x[..., :-1], -1, 2), stacked)
