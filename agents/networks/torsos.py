"""Torsos: features of single rows. Observations `[N, ...]` in, float32 `[N, features]` out."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import dm_env.specs
import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from agents.networks.config import NetworkConfig
from agents.networks.convolution import unstrided
from agents.types import Array

# The smallest image for which the three unpadded convolutions of `Nature` output at least one pixel.
NATURE_MIN_PIXELS = 36

# Keeps the scale of activations from layer to layer under ReLU (He et al. 2015).
RELU_INIT = nn.initializers.he_normal()


def to_float(observation: Array) -> Array:
  """Returns an observation as float32; uint8 is treated as pixels and scaled to [0, 1]."""
  if observation.dtype == jnp.uint8:
    return observation.astype(jnp.float32) * np.float32(1 / 255)
  return observation.astype(jnp.float32)


def to_image(observation: Array) -> Array:
  """Returns `[N, H, W, ...]` as float32 `[N, H, W, channels]`; `[N, H, W]` gets one channel."""
  return to_float(observation).reshape(*observation.shape[:3], -1)


class MLP(nn.Module):
  """Flattens `[N, ...]`, then a ReLU layer per entry of `sizes`."""

  sizes: Sequence[int] = (128, 64)

  @nn.compact
  def __call__(self, observation: Array) -> Array:
    """Maps `[N, ...]` of any dtype to float32 `[N, sizes[-1]]`."""
    x = to_float(observation).reshape(observation.shape[0], -1)
    for size in self.sizes:
      x = nn.relu(nn.Dense(size, kernel_init=RELU_INIT)(x))
    return x


class Nature(nn.Module):
  """The convolutions of DQN (Mnih et al. 2015, Methods, "Model architecture")."""

  hidden_size: int = 512

  @nn.compact
  def __call__(self, observation: Array) -> Array:
    """Maps `[N, H, W, ...]` to float32 `[N, hidden_size]`; H and W at least NATURE_MIN_PIXELS."""
    x = to_image(observation)
    conv = functools.partial(
      nn.Conv, padding='VALID', kernel_init=RELU_INIT, conv_general_dilated=unstrided
    )
    for channels, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
      x = nn.relu(conv(channels, (kernel, kernel), (stride, stride))(x))
    return nn.relu(nn.Dense(self.hidden_size, kernel_init=RELU_INIT)(x.reshape(x.shape[0], -1)))


class ResidualBlock(nn.Module):
  """`x + conv(relu(conv(relu(x))))`, 3x3 with the channels of x."""

  @nn.compact
  def __call__(self, x: Array) -> Array:
    """Maps float32 `[N, H, W, C]` to the same shape."""
    residual = x
    for _ in range(2):
      residual = nn.Conv(x.shape[-1], (3, 3))(nn.relu(residual))
    return x + residual


class Impala(nn.Module):
  """The deep residual torso of IMPALA (Espeholt et al. 2018, Figure 3, right)."""

  channels: Sequence[int] = (16, 32, 32)
  hidden_size: int = 256

  @nn.compact
  def __call__(self, observation: Array) -> Array:
    """Maps `[N, H, W, ...]` to float32 `[N, hidden_size]`."""
    x = to_image(observation)
    for channels in self.channels:
      x = nn.Conv(channels, (3, 3))(x)
      x = nn.max_pool(x, (3, 3), strides=(2, 2), padding='SAME')
      for _ in range(2):
        x = ResidualBlock()(x)
    x = nn.relu(x).reshape(x.shape[0], -1)
    return nn.relu(nn.Dense(self.hidden_size)(x))


def resolve(torso: str, observation_spec: dm_env.specs.Array) -> str:
  """Returns 'mlp', 'nature' or 'impala': `torso`, with 'auto' resolved from the observation spec.

  Raises:
    ValueError: `torso` is convolutional and the observation is not an image that it can take.
  """
  shape = observation_spec.shape
  is_image = len(shape) in (2, 3)
  fits_nature = is_image and min(shape[:2]) >= NATURE_MIN_PIXELS
  if torso == 'auto':
    return 'nature' if fits_nature and observation_spec.dtype == np.uint8 else 'mlp'
  if torso == 'nature' and not fits_nature:
    raise ValueError(
      f'--torso=nature needs images of at least {NATURE_MIN_PIXELS}x{NATURE_MIN_PIXELS} pixels but '
      f'observations are {shape}: use --torso=auto.'
    )
  if torso == 'impala' and not is_image:
    raise ValueError(
      f'--torso=impala needs images [H, W] or [H, W, C] but observations are {shape}: '
      'use --torso=auto.'
    )
  return torso


def make_torso(config: NetworkConfig, observation_spec: dm_env.specs.Array) -> nn.Module:
  """Returns the torso of the config; raises as `resolve` does."""
  name = resolve(config.torso, observation_spec)
  if name == 'mlp':
    return MLP(config.mlp_sizes)
  if name == 'nature':
    return Nature(config.hidden_size)
  return Impala(hidden_size=config.hidden_size)
