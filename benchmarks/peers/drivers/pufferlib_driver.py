"""Trains with PufferLib's PuffeRL on Gymnasium's vectorised CartPole; prints its progress as JSON lines.

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
import numpy as np
import pufferlib
import pufferlib.vector
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from progress import Progress
from pufferlib import pufferl
from pufferlib.pytorch import layer_init
from pufferlib_settings import configuration
from torch import Tensor, nn


class CartPole(pufferlib.PufferEnv):
  """Gymnasium's vectorised CartPole as one environment with many agents.

  PuffeRL leaves truncations out of its returns, so a truncated episode counts as terminated.

  Attributes:
    returns: of the last hundred episodes.
  """

  def __init__(self, num_envs: int, buf: Any = None):
    self._envs = CartPoleVectorEnv(num_envs)
    self.single_observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    self.single_action_space = self._envs.single_action_space
    self.num_agents = num_envs
    self.returns: collections.deque[float] = collections.deque(maxlen=100)
    self._running = np.zeros(num_envs)
    super().__init__(buf)

  def reset(self, seed: int | None = None) -> tuple[np.ndarray, list[Any]]:
    """Starts all episodes."""
    self.observations[:] = self._envs.reset(seed=seed)[0]
    return self.observations, []

  def step(self, actions: np.ndarray) -> tuple[Any, ...]:
    """Steps all; an episode's end starts the next one."""
    observations, rewards, terminated, truncated, _ = self._envs.step(actions)
    self.observations[:] = observations
    self.rewards[:] = rewards
    np.logical_or(terminated, truncated, out=self.terminals)
    self._running += rewards
    if self.terminals.any():
      self.returns.extend(self._running[self.terminals])
      self._running[self.terminals] = 0.0
    return self.observations, self.rewards, self.terminals, self.truncations, []

  def close(self) -> None:
    """Called by PufferLib."""
    self._envs.close()


class Policy(nn.Module):
  """Dense layers shared by policy and value, initialised by PufferLib."""

  def __init__(self, sizes: list[int], observation_size: int, num_actions: int):
    super().__init__()
    layers: list[nn.Module] = []
    for before, after in zip([observation_size, *sizes[:-1]], sizes, strict=True):
      layers += [layer_init(nn.Linear(before, after)), nn.ReLU()]
    self._torso = nn.Sequential(*layers)
    self._policy = layer_init(nn.Linear(sizes[-1], num_actions), std=0.01)
    self._value = layer_init(nn.Linear(sizes[-1], 1), std=1.0)

  def forward(self, observations: Tensor, state: Any = None) -> tuple[Tensor, Tensor]:
    """Returns logits and values."""
    embeddings = self._torso(observations)
    return self._policy(embeddings), self._value(embeddings)

  forward_eval = forward  # PuffeRL acts by this name.


class Trainer(pufferl.PuffeRL):
  """PuffeRL without its dashboard, which it draws four times a second."""

  def print_dashboard(self, *arguments: Any, **named: Any) -> None:
    """Called by PuffeRL."""


class Reporter:
  """A logger of PuffeRL, which calls it four times a second."""

  run_id = 'run'

  def __init__(self, progress: Progress, returns: collections.deque[float]):
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
  torch.set_num_threads(settings.get('threads', 1))
  torch.manual_seed(settings['seed'])
  num_envs = settings['num_actors'] * settings['envs_per_actor']
  envs = pufferlib.vector.make(
    CartPole, backend=pufferlib.PufferEnv, env_kwargs={'num_envs': num_envs}
  )
  policy = Policy(settings['mlp_sizes'], 4, envs.single_action_space.n)
  reporter = Reporter(Progress(settings['started']), envs.returns)
  own = pufferl.load_config('default')['train']
  trainer = Trainer(configuration(settings, own), envs, policy, reporter)
  while True:
    trainer.evaluate()
    trainer.train()


if __name__ == '__main__':
  main()
