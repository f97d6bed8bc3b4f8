"""Convolutions, within loops and outside, computed in the ways that XLA is fast at on CPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from agents.types import Array

# With fewer, a product of patches is faster than XLA's convolution.
_MANY_CHANNELS = 16
_MAX_COLUMNS = 16  # Of images whose patches are copied by columns: each is a copy in the program.
_PART = 64  # Images whose activations caches hold, about.


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


def by_parts(function: Callable[[Array], Array], x: Array) -> Array:
  """Returns `function(x)` for a function of single images, outside loops.

  On CPUs it is computed for parts of a large batch. XLA's gradient of a convolution costs more for each
  image of a large batch than for each of a small one.

  Args:
    function: maps `[n, ...]` to `[n, ...]`, each row by itself, for any n.
    x: `[N, ...]`.
  """
  count = x.shape[0]  # A symbol in an exported function.
  if not isinstance(count, int) or count <= _PART or jax.default_backend() != 'cpu':
    return function(x)
  return jnp.concatenate([function(x[i : i + _PART]) for i in range(0, count, _PART)])


def in_loop(
  x: Array, kernel: Array, strides: Sequence[int], padding: Any, *args: Any, **kwargs: Any
) -> Array:
  """`jax.lax.conv_general_dilated` for use within a loop such as `jax.lax.scan`.

  On CPUs, XLA computes the gradient of a convolution in a loop tens of times slower than outside. There
  the gradient consists of matrix products, which are as fast in a loop. A convolution with stride s
  becomes one with stride 1 over s x s squares of pixels.

  Args:
    x: `[N, H, W, C]`.
    kernel: `[k, k, C, features]`; k is odd for padding 'SAME', and a multiple of the stride.
    strides: one stride, twice; 1 for padding 'SAME'.
    padding: 'VALID' or 'SAME'.

  Returns:
    `[N, h, w, features]`: the convolution, except for the order of summation.

  Raises:
    ValueError: for any other strides or padding.
  """
  stride, size = strides[0], kernel.shape[0]
  divides = padding == 'VALID' and size % stride == 0
  if tuple(strides) != (stride, stride) or not (divides or (padding == 'SAME' and stride == 1)):
    raise ValueError(
      'in_loop supports padding VALID with a stride that divides the size of the kernel, and padding '
      f'SAME with stride 1, not {padding} with {tuple(strides)} and a kernel of {size} pixels.'
    )
  return jax.lax.platform_dependent(
    x,
    kernel,
    cpu=lambda x, kernel: _on_cpu(x, kernel, stride, padding),
    default=lambda x, kernel: jax.lax.conv_general_dilated(
      x, kernel, strides, padding, *args, **kwargs
    ),
  )


def _on_cpu(x: Array, kernel: Array, stride: int, padding: str) -> Array:
  """Returns the convolution of `in_loop`."""
  size = kernel.shape[0]
  if padding == 'SAME':
    pad = size // 2
    x = jnp.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
  height, width = ((pixels - size) // stride * stride + size for pixels in x.shape[1:3])
  x = space_to_depth(x[:, :height, :width], stride)
  kernel = space_to_depth(kernel.transpose(3, 0, 1, 2), stride).transpose(1, 2, 3, 0)
  return _convolved(x, kernel)


@jax.custom_vjp
def _convolved(x: Array, kernel: Array) -> Array:
  """Returns the convolution with stride 1 and without padding."""
  size, _, channels, features = kernel.shape
  if channels < _MANY_CHANNELS:
    return _patches(x, size) @ kernel.reshape(-1, features)
  layout = 'NHWC', 'HWIO', 'NHWC'
  return jax.lax.conv_general_dilated(x, kernel, (1, 1), 'VALID', dimension_numbers=layout)


def _patches(x: Array, size: int) -> Array:
  """Returns the `size` x `size` patches of images, `[N, H, W, C]` to `[N, h, w, size * size * C]`."""
  height, width = (pixels - size + 1 for pixels in x.shape[1:3])
  if width <= _MAX_COLUMNS:
    # A copy for each output column moves the `size` pixels of a row together.
    across = jnp.stack([x[:, :, j : j + size] for j in range(width)], axis=2)
    across = across.reshape(*across.shape[:3], -1)
    return jnp.concatenate([across[:, i : i + height] for i in range(size)], axis=-1)
  places = [x[:, i : i + height, j : j + width] for i, j in _places(size)]
  return jnp.concatenate(places, axis=-1)


def _forward(x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
  return _convolved(x, kernel), (x, kernel)


def _backward(inputs: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
  """Returns the gradients of x and of the kernel, each by one product.

  The gradient is padded with zeros to the size of x. A shift by rows and columns is then a shift of the
  flattened pixels, a copy without gaps: what it moves to other rows or images is 0. Where the input has
  less than half the elements, as in a first layer, the kernel's gradient is a product of its patches.
  """
  x, kernel = inputs
  size, _, channels, features = kernel.shape
  behind = 0, size - 1
  flat = jnp.pad(gradient, ((0, 0), behind, behind, (0, 0))).reshape(-1, features)
  num_pixels, width = flat.shape[0], x.shape[2]
  farthest = (size - 1) * (width + 1)
  flat = jnp.pad(flat, ((farthest, 0), (0, 0)))
  starts = (farthest - i * width - j for i, j in _places(size))
  shifted = jnp.concatenate([flat[start : start + num_pixels] for start in starts], axis=-1)
  of_x = (shifted @ kernel.transpose(0, 1, 3, 2).reshape(-1, channels)).reshape(x.shape)
  if 2 * gradient.shape[1] * gradient.shape[2] * channels < x.shape[1] * width * features:
    patches = _patches(x, size).reshape(-1, size * size * channels)
    return of_x, (patches.T @ gradient.reshape(-1, features)).reshape(kernel.shape)
  of_kernel = (x.reshape(-1, channels).T @ shifted).reshape(channels, size, size, features)
  return of_x, of_kernel.transpose(1, 2, 0, 3)


_convolved.defvjp(_forward, _backward)


def _places(size: int) -> Iterator[tuple[int, int]]:
  """Yields the rows and columns of a kernel."""
  return ((i, j) for i in range(size) for j in range(size))
