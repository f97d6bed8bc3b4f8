"""Frame stacking inside the network: rows, requests and replay carry single frames."""

from __future__ import annotations

import jax.numpy as jnp

from agents.types import Array


def stack_frames(frames: Array, observation: Array, is_first: Array) -> tuple[Array, Array]:
  """Stacks each observation with the `k - 1` before it in its episode.

  Args:
    frames: `[B, k-1, ...]`, the observations before row 0, oldest first; zeros before the episode.
    observation: `[T, B, ...]`, same dtype.
    is_first: bool `[T, B]`.

  Returns:
    stacked: `[T, B, ..., k]`, same dtype, newest last; zeros before the FIRST row.
    frames: `[B, k-1, ...]`, the same state after row T-1.
  """
  depth, num_rows = frames.shape[1] + 1, observation.shape[0]
  history = jnp.concatenate([jnp.moveaxis(frames, 1, 0), observation])  # Row t is at t + k - 1.
  # A frame belongs in the stack of row t if no FIRST lies between them.
  episode = jnp.cumsum(is_first, axis=0, dtype=jnp.int32)
  before = jnp.zeros((depth - 1, *episode.shape[1:]), jnp.int32)
  episodes = jnp.concatenate([before, episode])
  pixels = (1,) * (observation.ndim - 2)

  def masked(start: int, rows: int, current: Array) -> Array:
    same = episodes[start : start + rows] == current
    return jnp.where(same.reshape(*same.shape, *pixels), history[start : start + rows], 0)

  stacked = jnp.stack([masked(lag, num_rows, episode) for lag in range(depth)], axis=-1)
  return stacked, jnp.moveaxis(masked(num_rows, depth - 1, episode[-1]), 0, 1)


def frames_before_rows(frames: Array, observation: Array, is_first: Array) -> Array:
  """Returns the state `frames` before each row, `[T, B, k-1, ...]`, zeros before the row's episode.

  `stack_frames` maps the state before a row and the row alone to the stack that it has in the unroll.

  Args:
    frames: `[B, k-1, ...]`, before row 0.
    observation: `[T, B, ...]`, same dtype.
    is_first: bool `[T, B]`.
  """
  stacked, _ = stack_frames(frames, observation, is_first)
  return jnp.moveaxis(stacked[..., :-1], -1, 2)
