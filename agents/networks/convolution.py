"""A strided convolution, computed without strides for a faster gradient in XLA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from agents.types import Array


def space_to_depth(x: Array, size: int) -> Array:
  """Moves the pixels of each `size` x `size` square into the channels of one pixel.

  Args:
    x: `[N, H, W, C]`, H and W multiples of `size`.

  Returns:
    `[N, H / size, W / size, size * size * C]`.
  """
  n, height, width, channels = x.shape
  x = x.reshape(n, height // size, size, width // size, size, channels)
  return x.transpose(0, 1, 3, 2, 4, 5).reshape(n, height // size, width // size, -1)


def unstrided(
  x: Array, kernel: Array, strides: Sequence[int], padding: Any, *args: Any, **kwargs: Any
) -> Array:
  """`jax.lax.conv_general_dilated` for `flax.linen.Conv(..., padding='VALID')`, with equal parameters.

  A convolution with stride s equals one with stride 1 over s x s squares of pixels. The gradient of a
  strided convolution is a convolution over inputs dilated with zeros, and spends time on the zeros.

  Args:
    x: `[N, H, W, C]`.
    kernel: `[k, k, C, features]`, k a multiple of the stride.
    strides: one stride, twice.
    padding: 'VALID'.

  Returns:
    `[N, h, w, features]`: the strided convolution, except for the order of summation.

  Raises:
    ValueError: for any other padding.
  """
  if padding != 'VALID':
    raise ValueError(f'unstrided supports padding VALID only, not {padding}.')
  stride, size = strides[0], kernel.shape[0]
  height, width = ((pixels - size) // stride * stride + size for pixels in x.shape[1:3])
  x = space_to_depth(x[:, :height, :width], stride)
  kernel = space_to_depth(kernel.transpose(3, 0, 1, 2), stride).transpose(1, 2, 3, 0)
  return jax.lax.conv_general_dilated(x, kernel, (1, 1), padding, *args, **kwargs)
