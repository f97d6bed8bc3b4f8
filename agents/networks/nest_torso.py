"""The torso of observations that are nests."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
from dm_env import specs

from agents import nests
from agents.networks import choice, torsos
from agents.networks.config import NetworkConfig
from agents.types import Array, Nest


class OneHot(nn.Module):
  """Labels as one-hot vectors, then a torso."""

  num_values: int
  torso: nn.Module

  def __call__(self, observation: Array) -> Array:
    """Maps integers `[N, ...]` to float32 `[N, features]`."""
    return self.torso(jax.nn.one_hot(observation, self.num_values))


class NestTorso(nn.Module):
  """A torso for each leaf; their features side by side go through one layer.

  Attributes:
    leaves: the torsos by the name of the leaf, as `agents.nests.named` gives it, with '.' for '/'.
    hidden_size: units of the layer.
    activation: of the layer.
    init_of: the option `init` of the network.
    layer_norm: as in `agents.networks.config`.
  """

  leaves: dict[str, nn.Module]
  hidden_size: int
  activation: str = 'relu'
  init_of: str = 'fan_in'
  layer_norm: bool = False

  @nn.compact
  def __call__(self, observation: Nest) -> Array:
    """Maps a nest of `[N, ...]` to float32 `[N, hidden_size]`."""
    named = nests.named(observation)
    features = [self.leaves[_module(name)](leaf) for name, leaf in named.items()]
    x = jnp.concatenate(features, axis=-1)
    layer = (self.hidden_size,), self.activation, self.init_of, self.layer_norm
    return torsos.MLP(*layer, name='joint')(x)


def make_torso(config: NetworkConfig, observation_spec: Nest) -> nn.Module:
  """Returns the torso of the config, for an array or for a nest.

  Each leaf of a nest has the torso that an array of its spec would have. A DiscreteArray is one-hot. A
  convolutional `--torso` is that of the leaves that are images it can take.

  Args:
    config: of the network.
    observation_spec: of one observation.

  Raises:
    ValueError: as in `agents.networks.torsos.make_torso`; or no leaf fits a convolutional torso.
  """
  if callable(config.torso):
    return torsos.make_torso(config, observation_spec)
  if not nests.is_nest(observation_spec):
    return _of_labels(observation_spec, torsos.make_torso(config, observation_spec))
  named = nests.named(observation_spec)
  names = choice.torsos(config.torso, observation_spec)
  leaves = {}
  for name, spec in named.items():
    torso = torsos.make_named(names[name], config)
    leaves[_module(name)] = _of_labels(spec, torso)
  layer = config.hidden_size or 256, config.activation, config.init, config.layer_norm
  return NestTorso(leaves, *layer)


def _of_labels(spec: specs.Array, torso: nn.Module) -> nn.Module:
  """Returns a torso whose labels, if the spec has such, are one-hot."""
  return OneHot(spec.num_values, torso) if isinstance(spec, specs.DiscreteArray) else torso


def _module(name: str) -> str:
  """Returns the name of the torso of a leaf; saved parameters separate names by '/'."""
  return name.replace('/', '.')
