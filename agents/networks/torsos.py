"""Torsos: features of single rows. Observations `[N, ...]` in, float32 `[N, features]` out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import dm_env.specs
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from agents.networks import choice
from agents.networks.config import NetworkConfig
from agents.networks.convolution import by_parts, in_loop
from agents.types import Array, Nest

ACTIVATIONS = {'relu': nn.relu, 'tanh': nn.tanh}


def hidden_init(init: str, activation: str = 'relu') -> Callable[..., Array]:
  """Returns the initializer of the kernel of a hidden layer, for options of `NetworkConfig`.

  With 'fan_in' the scale of activations stays the same from layer to layer (He et al. 2015 under ReLU,
  LeCun et al. 1998 under tanh). With 'orthogonal' the gain is sqrt(2), also under tanh, as in PPO's
  first implementation.
  """
  if init == 'orthogonal':
    return nn.initializers.orthogonal(np.sqrt(2))
  return nn.initializers.he_normal() if activation == 'relu' else nn.initializers.lecun_normal()


def output_init(init: str) -> Callable[..., Array]:
  """Returns the initializer of the kernel of a layer that outputs values: gain 1."""
  if init == 'orthogonal':
    return nn.initializers.orthogonal(1.0)
  return nn.initializers.lecun_normal()


def to_float(observation: Array) -> Array:
  """Returns an observation as float32; uint8 is treated as pixels and scaled to [0, 1]."""
  if observation.dtype == jnp.uint8:
    return observation.astype(jnp.float32) * np.float32(1 / 255)
  return observation.astype(jnp.float32)


def to_image(observation: Array, center: bool = False) -> Array:
  """Returns `[N, H, W, ...]` as float32 `[N, H, W, channels]`; `[N, H, W]` gets one channel.

  With `center`, the mean of each channel of an image of bytes is subtracted; values are in [-1, 1].
  """
  image = to_float(observation).reshape(*observation.shape[:3], -1)
  if center and observation.dtype == jnp.uint8:
    image -= jnp.mean(image, axis=(1, 2), keepdims=True)
  return image


def normalization(layer_norm: bool) -> Callable[[Array], Array]:
  """Returns what follows a layer: LayerNorm over its channels if `layer_norm`, else nothing.

  To be called within the module of the layer, whose parameters then include those of LayerNorm.
  """
  return nn.LayerNorm() if layer_norm else lambda x: x


class MLP(nn.Module):
  """Flattens `[N, ...]`, then a layer with activation per entry of `sizes`."""

  sizes: Sequence[int] = (128, 64)
  activation: str = 'relu'
  init_of: str = 'fan_in'
  layer_norm: bool = False

  @nn.compact
  def __call__(self, observation: Array) -> Array:
    """Maps `[N, ...]` of any dtype to float32 `[N, sizes[-1]]`."""
    x = to_float(observation).reshape(observation.shape[0], -1)
    kernel_init = hidden_init(self.init_of, self.activation)
    for size in self.sizes:
      x = normalization(self.layer_norm)(nn.Dense(size, kernel_init=kernel_init)(x))
      x = ACTIVATIONS[self.activation](x)
    return x


# DQN's (Mnih et al. 2015, Methods, "Model architecture").
NATURE = (32, 8, 4), (64, 4, 2), (64, 3, 1)
# For screens of half DQN's size, with half its channels: 42 -> 20 -> 9 -> 7 pixels, as 84 there.
SMALL = (16, 4, 2), (32, 4, 2), (32, 3, 1)


class Convolutions(nn.Module):
  """Convolutions without padding, then one layer."""

  layers: Sequence[tuple[int, int, int]]  # Channels, kernel size and stride of each.
  hidden_size: int
  init_of: str = 'fan_in'
  center: bool = False
  layer_norm: bool = False
  looped: bool = False  # See `agents.networks.loops`.

  @nn.compact
  def __call__(self, observation: Array) -> Array:
    """Maps `[N, H, W, ...]` to float32 `[N, hidden_size]`; see `choice` for the smallest H and W."""
    kernel_init = hidden_init(self.init_of)
    conv = functools.partial(
      nn.Conv,
      padding='VALID',
      kernel_init=kernel_init,
      conv_general_dilated=_convolution(self.looped),
    )
    convs = [
      conv(channels, (size, size), (stride, stride)) for channels, size, stride in self.layers
    ]
    norms = [normalization(self.layer_norm) for _ in convs]

    def features(images: Array) -> Array:
      x = to_image(images, self.center)
      for conv, norm in zip(convs, norms, strict=True):
        x = nn.relu(norm(conv(x)))
      return x.reshape(x.shape[0], -1)

    x = features(observation) if self.looped else by_parts(features, observation)
    x = nn.Dense(self.hidden_size, kernel_init=kernel_init)(x)
    return nn.relu(normalization(self.layer_norm)(x))


class ResidualBlock(nn.Module):
  """`x + conv(relu(conv(relu(x))))`, 3x3 with the channels of x."""

  looped: bool = False

  @nn.compact
  def __call__(self, x: Array) -> Array:
    """Maps float32 `[N, H, W, C]` to the same shape."""
    residual, convolution = x, _convolution(self.looped)
    for _ in range(2):
      conv = nn.Conv(x.shape[-1], (3, 3), conv_general_dilated=convolution)
      residual = conv(nn.relu(residual))
    return x + residual


class Impala(nn.Module):
  """The deep residual torso of IMPALA (Espeholt et al. 2018, Figure 3, right).

  `init_of` is for the layer after the convolutions, as in Cleanba; fan_in has LeCun's gain here. With
  `layer_norm` the convolution before each pooling is normalised, and the layer after all of them.
  """

  channels: Sequence[int] = (16, 32, 32)
  hidden_size: int = 256
  init_of: str = 'fan_in'
  center: bool = False
  layer_norm: bool = False
  looped: bool = False

  @nn.compact
  def __call__(self, observation: Array) -> Array:
    """Maps `[N, H, W, ...]` to float32 `[N, hidden_size]`."""
    convolution = _convolution(self.looped)
    sections = [
      (
        nn.Conv(channels, (3, 3), conv_general_dilated=convolution),
        normalization(self.layer_norm),
        [ResidualBlock(self.looped) for _ in range(2)],
      )
      for channels in self.channels
    ]

    def features(images: Array) -> Array:
      x = to_image(images, self.center)
      for conv, norm, blocks in sections:
        x = nn.max_pool(norm(conv(x)), (3, 3), strides=(2, 2), padding='SAME')
        for block in blocks:
          x = block(x)
      return nn.relu(x).reshape(x.shape[0], -1)

    x = features(observation) if self.looped else by_parts(features, observation)
    orthogonal = self.init_of == 'orthogonal'
    kernel_init = hidden_init('orthogonal') if orthogonal else nn.initializers.lecun_normal()
    x = nn.Dense(self.hidden_size, kernel_init=kernel_init)(x)
    return nn.relu(normalization(self.layer_norm)(x))


class MinAtar(nn.Module):
  """One convolution of 16 channels and one layer (Young and Tian 2019, "MinAtar", section 3).

  With `layer_norm`, planes of any type are divided by 255 like pixels, as PQN's authors do (purejaxql,
  `pqn_minatar.py`). The biases of the convolution then outweigh its input, and what is normalised is
  nearly linear in it. With planes as they are, PQN learns less: see benchmarks/NOTES.md.
  """

  hidden_size: int = 128
  init_of: str = 'fan_in'
  center: bool = False
  layer_norm: bool = False

  @nn.compact
  def __call__(self, observation: Array) -> Array:
    """Maps `[N, H, W, ...]` to float32 `[N, hidden_size]`; H and W at least 3."""
    x = to_image(observation, self.center)
    if self.layer_norm and observation.dtype != jnp.uint8:
      x *= np.float32(1 / 255)
    kernel_init = hidden_init(self.init_of)
    # Images this small are played in loops, as by Anakin.
    conv = nn.Conv(
      16, (3, 3), padding='VALID', kernel_init=kernel_init, conv_general_dilated=in_loop
    )
    x = nn.relu(normalization(self.layer_norm)(conv(x))).reshape(x.shape[0], -1)
    x = nn.Dense(self.hidden_size, kernel_init=kernel_init)(x)
    return nn.relu(normalization(self.layer_norm)(x))


class Twins(nn.Module):
  """Two torsos of the same observation, for a policy and for its value."""

  policy: nn.Module
  value: nn.Module

  def __call__(self, observation: Array) -> Array:
    """Maps `[N, ...]` to float32 `[N, 2 D]`: the features of the policy, then those of the value."""
    return jnp.concatenate([self.policy(observation), self.value(observation)], axis=-1)


def _convolution(looped: bool) -> Callable[..., Array]:
  return in_loop if looped else jax.lax.conv_general_dilated


def make_torso(config: NetworkConfig, observation_spec: dm_env.specs.Array) -> nn.Module:
  """Returns the torso of the config.

  Args:
    config: of the network.
    observation_spec: of one observation.

  Raises:
    ValueError: as in `choice.torso`, or a user's own torso is not a flax module; one sentence.
  """
  if callable(config.torso):
    return _user_torso(config.torso)
  return make_named(choice.torso(config.torso, observation_spec), config)


def make_named(name: str, config: NetworkConfig) -> nn.Module:
  """Returns the torso of a name of `choice`; the other arguments are those of `make_torso`."""
  layer_norm = config.layer_norm
  if name == 'mlp':
    return MLP(config.mlp_sizes, config.activation, config.init, layer_norm)
  center = config.center_pixels
  if name == 'minatar':
    return MinAtar(config.hidden_size or 128, config.init, center, layer_norm)
  if name == 'nature':
    return Convolutions(NATURE, config.hidden_size or 512, config.init, center, layer_norm)
  if name == 'small':
    return Convolutions(SMALL, config.hidden_size or 256, config.init, center, layer_norm)
  return Impala(
    hidden_size=config.hidden_size or 512,
    init_of=config.init,
    center=center,
    layer_norm=layer_norm,
  )


def _user_torso(make: Callable[[], nn.Module]) -> nn.Module:
  """Returns a user's own torso."""
  torso = make()
  if not isinstance(torso, nn.Module):
    raise ValueError(f'the torso is a {type(torso).__name__}, which is not a flax.linen.Module.')
  return torso


def check_variables(variables: Mapping[str, Nest]) -> None:
  """Checks the collections of variables of a network, whose torso may be a user's own.

  Raises:
    ValueError: it has others than its parameters; one sentence.
  """
  if others := sorted(variables.keys() - {'params'}):
    raise ValueError(
      f'the torso has variables besides its parameters, {", ".join(others)}; use layers without them, '
      'such as LayerNorm in place of BatchNorm.'
    )


def check_features(features: Array, num_rows: int) -> None:
  """Checks the output of a torso, which may be a user's own.

  Args:
    features: the output for `num_rows` observations.
    num_rows: N.

  Raises:
    ValueError: unless it is float32 `[N, D]`; one sentence.
  """
  if features.ndim != 2 or features.shape[0] != num_rows or features.dtype != jnp.float32:
    raise ValueError(
      f'the torso returned {features.dtype}{list(features.shape)} for {num_rows} row(s); it must return '
      f'float32[{num_rows}, D].'
    )
