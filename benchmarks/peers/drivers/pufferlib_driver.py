"""Trains with PufferLib's PuffeRL; prints its progress as JSON lines until it is killed.

python pufferlib_driver.py SETTINGS   JSON: the common settings, and `started`, in Unix time

With `own_training` the rest of its settings are those of PufferLib's defaults, the optimiser included.
"""

from __future__ import annotations

import collections
import json
import math
import sys
from typing import Any

import gymnasium
import pufferlib_envs
import torch
from progress import Progress
from pufferlib import pufferl
from pufferlib.pytorch import layer_init
from pufferlib_settings import configuration
from torch import Tensor, nn
from torch_networks import convolutions


def dense(sizes: list[int], observation_size: int, activation: str) -> nn.Sequential:
  """Returns the layers of our MLP, initialised by PufferLib."""
  layers: list[nn.Module] = []
  nonlinearity = {'relu': nn.ReLU, 'tanh': nn.Tanh}[activation]
  for before, after in zip([observation_size, *sizes[:-1]], sizes, strict=True):
    layers += [layer_init(nn.Linear(before, after)), nonlinearity()]
  return nn.Sequential(*layers)


class Images(nn.Module):
  """The convolutions of our torsos for images, and a dense layer."""

  def __init__(self, torso: str, hidden_size: int, observation_shape: tuple[int, ...]):
    super().__init__()
    layers = convolutions(torso, observation_shape[0])
    features = layers(torch.zeros(1, *observation_shape)).shape[-1]
    self._layers = nn.Sequential(layers, layer_init(nn.Linear(features, hidden_size)), nn.ReLU())

  def forward(self, images: Tensor) -> Tensor:
    """Maps uint8 `[N, C, H, W]` to `[N, hidden_size]`."""
    return self._layers(images.float() / 255.0)


class Policy(nn.Module):
  """A torso shared by policy and value, or one of each; discrete or continuous actions."""

  def __init__(
    self,
    torsos: list[nn.Module],
    size: int,
    actions: gymnasium.spaces.Discrete | gymnasium.spaces.Box,
  ):
    super().__init__()
    self._torsos = nn.ModuleList(torsos)
    continuous = isinstance(actions, gymnasium.spaces.Box)
    outputs = math.prod(actions.shape) if continuous else int(actions.n)
    self._policy = layer_init(nn.Linear(size, outputs), std=0.01)
    self._value = layer_init(nn.Linear(size, 1), std=1.0)
    self._log_std = nn.Parameter(torch.zeros(1, outputs)) if continuous else None

  def forward(self, observations: Tensor, state: Any = None) -> tuple[Any, Tensor]:
    """Returns logits, or a normal distribution of continuous actions, and values."""
    embeddings = [torso(observations) for torso in self._torsos]
    policy, value = self._policy(embeddings[0]), self._value(embeddings[-1])
    if self._log_std is None:
      return policy, value
    return torch.distributions.Normal(policy, self._log_std.exp().expand_as(policy)), value

  forward_eval = forward  # PuffeRL acts by this name.


def make_policy(
  settings: dict[str, Any],
  shape: tuple[int, ...],
  actions: gymnasium.spaces.Discrete | gymnasium.spaces.Box,
) -> Policy:
  """Returns the common network for observations of `shape`."""
  if settings['torso'] == 'mlp':
    sizes, num_torsos = settings['mlp_sizes'], 2 if settings['separate_critic'] else 1
    torsos = [dense(sizes, shape[0], settings['activation']) for _ in range(num_torsos)]
    return Policy(torsos, sizes[-1], actions)
  size = settings['hidden_size']
  return Policy([Images(settings['torso'], size, shape)], size, actions)


class Trainer(pufferl.PuffeRL):
  """PuffeRL without its dashboard, which it draws four times a second."""

  def print_dashboard(self, *arguments: Any, **named: Any) -> None:
    """Called by PuffeRL."""


class Reporter:
  """A logger of PuffeRL, which calls it four times a second."""

  run_id = 'run'

  def __init__(self, progress: Progress, returns: pufferlib_envs.Returns):
    self._progress = progress
    self._returns = returns

  def log(self, logs: dict[str, Any], step: int) -> None:
    """Reports."""
    mean = sum(self._returns) / len(self._returns) if self._returns else math.nan
    self._progress.tell(step, step, mean)


def main() -> None:
  """Trains."""
  settings = json.loads(sys.argv[1])
  del sys.argv[1:]  # PufferLib would parse them.
  if settings['torso'] == 'mlp':
    # At the common sizes, several threads take longer for so small a network.
    torch.set_num_threads(settings.get('threads', 1))
  torch.manual_seed(settings['seed'])
  returns: pufferlib_envs.Returns = collections.deque(maxlen=100)
  envs = pufferlib_envs.make(settings, returns)
  policy = make_policy(settings, envs.single_observation_space.shape, envs.single_action_space)
  reporter = Reporter(Progress(settings['started']), returns)
  own = pufferl.load_config('default')['train']
  trainer = Trainer(configuration(settings, own), envs, policy, reporter)
  while True:
    trainer.evaluate()
    trainer.train()


if __name__ == '__main__':
  main()
