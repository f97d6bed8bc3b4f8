"""The networks of MuZero: representation h, dynamics g and prediction f.

A hidden state is scaled to [0, 1] by its own minimum and maximum, so that it has the range of the
actions beside it (MuZero's appendix G). What all observations share, such as the background of a screen,
would take most of that range, so images of bytes are centred. Logits start at zero: a uniform policy,
and values and rewards of 0.
"""

from __future__ import annotations

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from agents.muzero.config import MuZeroConfig
from agents.networks import choice
from agents.networks.config import NetworkConfig
from agents.networks.convolution import in_loop
from agents.networks.loops import for_loops
from agents.networks.nest_torso import make_torso
from agents.networks.torsos import check_features, hidden_init, to_image
from agents.types import Array, Nest


class Prediction(NamedTuple):
  """What f outputs for hidden states `[N, ...]`."""

  policy_logits: Array  # float32 `[N, A]`.
  value_logits: Array  # float32 `[N, num_bins]`.


def scale_to_unit(state: Array) -> Array:
  """Returns states `[N, ...]` scaled to [0, 1], each by its own minimum and maximum."""
  axes = tuple(range(1, state.ndim))
  low = jnp.min(state, axis=axes, keepdims=True)
  high = jnp.max(state, axis=axes, keepdims=True)
  return (state - low) / (high - low + 1e-5)


class Head(nn.Module):
  """One hidden layer, then logits that start at zero.

  Before it, a 1x1 convolution reduces an image to `channels` (MuZero's appendix F), unless they are 0.
  """

  hidden_size: int
  num_logits: int
  channels: int = 0

  @nn.compact
  def __call__(self, features: Array) -> Array:
    """Maps float32 `[N, ...]` to `[N, num_logits]`."""
    x = features
    if self.channels and x.ndim == 4:
      x = nn.relu(nn.Dense(self.channels, kernel_init=hidden_init('fan_in'))(x))
    x = x.reshape(x.shape[0], -1)
    x = nn.relu(nn.Dense(self.hidden_size, kernel_init=hidden_init('fan_in'))(x))
    return nn.Dense(self.num_logits, kernel_init=nn.initializers.zeros)(x)


class VectorRepresentation(nn.Module):
  """h of anything that a torso takes: the torso, and a layer to a vector `[N, size]`."""

  torso: nn.Module
  size: int

  @nn.compact
  def __call__(self, observation: Nest) -> Array:
    """Maps an array or a nest of `[N, ...]` to float32 `[N, size]`, not scaled."""
    features = self.torso(observation)
    check_features(features, jax.tree.leaves(observation)[0].shape[0])
    return nn.Dense(self.size)(features)


class MLPDynamics(nn.Module):
  """g of vectors: one hidden layer, added to the state."""

  size: int
  num_actions: int

  @nn.compact
  def __call__(self, state: Array, action: Array) -> Array:
    """Maps states `[N, size]` and actions int `[N]` to states `[N, size]`, not scaled."""
    x = jnp.concatenate([state, jax.nn.one_hot(action, self.num_actions)], axis=-1)
    x = nn.relu(nn.Dense(self.size, kernel_init=hidden_init('fan_in'))(x))
    return state + nn.Dense(self.size)(x)


class Block(nn.Module):
  """`x + conv(relu(conv(relu(x))))`, with layer normalisation before each relu if `norm` (Unplugged)."""

  norm: bool

  @nn.compact
  def __call__(self, x: Array) -> Array:
    """Maps float32 `[N, H, W, C]` to the same shape."""
    residual = x
    for _ in range(2):
      if self.norm:
        residual = nn.LayerNorm(reduction_axes=(-3, -2, -1))(residual)
      residual = convolution(x.shape[-1])(nn.relu(residual))
    return x + residual


class ConvRepresentation(nn.Module):
  """h of images: a convolution and blocks, after MuZero's downsampling (appendix F) if `shrinks`."""

  channels: int
  blocks: int
  shrinks: bool

  @nn.compact
  def __call__(self, observation: Array) -> Array:
    """Maps `[N, H, W, ...]` to float32 `[N, H', W', channels]`, not scaled."""
    x = to_image(observation, center=True)
    if not self.shrinks:
      x = nn.relu(convolution(self.channels)(x))
    else:
      for channels, blocks in ((self.channels // 2, 2), (self.channels, 3)):
        x = nn.Conv(channels, (3, 3), (2, 2))(x)
        for _ in range(blocks):
          x = Block(True)(x)
      x = nn.avg_pool(x, (3, 3), (2, 2), 'SAME')
      for _ in range(3):
        x = Block(True)(x)
      x = nn.avg_pool(x, (3, 3), (2, 2), 'SAME')
    for _ in range(self.blocks):
      x = Block(self.shrinks)(x)
    return x


class ConvDynamics(nn.Module):
  """g of images: the action is a plane of ones among planes of zeros.

  Without `norm` a relu is between two convolutions, so that what an action changes depends on the state
  even without blocks.
  """

  blocks: int
  num_actions: int
  norm: bool

  @nn.compact
  def __call__(self, state: Array, action: Array) -> Array:
    """Maps states `[N, H, W, C]` and actions int `[N]` to states `[N, H, W, C]`, not scaled."""
    planes = jax.nn.one_hot(action, self.num_actions)[:, None, None, :]
    planes = jnp.broadcast_to(planes, (*state.shape[:3], self.num_actions))
    x = convolution(state.shape[-1])(jnp.concatenate([state, planes], axis=-1))
    if not self.norm:
      x = convolution(state.shape[-1])(nn.relu(x))
    x = state + x
    for _ in range(self.blocks):
      x = Block(self.norm)(x)
    return x


class Model(nn.Module):
  """The three functions, with one set of params."""

  representation: nn.Module
  transition: nn.Module
  policy: nn.Module
  value: nn.Module
  reward: nn.Module

  def represent(self, observation: Nest) -> Array:
    """Returns hidden states in [0, 1], float32 `[N, ...]`, of observations with stacked frames."""
    return scale_to_unit(self.representation(observation))

  def dynamics(self, state: Array, action: Array) -> tuple[Array, Array]:
    """Returns the next hidden states, `[N, ...]` in [0, 1], and reward logits `[N, num_bins]`."""
    state = scale_to_unit(self.transition(state, action))
    return state, self.reward(state)

  def predict(self, state: Array) -> Prediction:
    """Returns policy and value of hidden states `[N, ...]`."""
    return Prediction(self.policy(state), self.value(state))

  def __call__(self, observation: Nest, action: Array) -> tuple[Prediction, Array]:
    """Calls all three functions, so that `init` makes all parameters."""
    state, reward = self.dynamics(self.represent(observation), action)
    return self.predict(state), reward


def make_model(config: MuZeroConfig, observation_spec: Nest, num_actions: int) -> Model:
  """Returns the networks of a config.

  Args:
    config: of the agent.
    observation_spec: of what networks see of one observation, an array or a nest.
    num_actions: A.

  Raises:
    ValueError: as in `choice.model`, or a user's own torso is not a flax module; one sentence.
  """
  name = choice.model(config.model, config.torso, observation_spec)
  representation: nn.Module
  transition: nn.Module
  size = config.hidden_state_size
  if name in ('mlp', 'torso'):
    kind = 'mlp' if name == 'mlp' else config.torso
    networks = NetworkConfig(
      torso=kind, mlp_sizes=config.mlp_sizes, hidden_size=size, center_pixels=True
    )
    torso = for_loops(make_torso(networks, observation_spec))
    representation = VectorRepresentation(torso, size)
    transition = MLPDynamics(size, num_actions)
  else:
    shrinks = name == 'residual'
    representation = ConvRepresentation(config.model_channels, config.model_blocks, shrinks)
    transition = ConvDynamics(config.model_blocks, num_actions, shrinks)

  def head(num_logits: int) -> Head:
    return Head(config.head_size, num_logits, config.head_channels)

  return Model(
    representation,
    transition,
    policy=head(num_actions),
    value=head(config.num_bins),
    reward=head(config.num_bins),
  )


def convolution(channels: int) -> nn.Conv:
  """Returns a 3x3 convolution; searches and unrolls of the model are loops."""
  return nn.Conv(channels, (3, 3), conv_general_dilated=in_loop)
