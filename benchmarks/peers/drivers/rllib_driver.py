"""Trains with RLlib's IMPALA on PyTorch; prints its progress as JSON lines until it is killed.

python rllib_driver.py SETTINGS   JSON: the common settings, and `started`, in Unix time
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import games
import ray
from progress import Progress
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.tune.registry import register_env
from torch import Tensor, nn
from torch_networks import convolutions

_ENV = 'peers'


class ImageModule(TorchRLModule, ValueFunctionAPI):
  """Convolutions and a dense layer shared by policy and value, as in our network.

  RLlib's default pads the convolutions, and has separate layers for policy and value.
  """

  def setup(self) -> None:
    """Called by RLlib."""
    hidden_size = self.model_config['hidden_size']
    layers = convolutions(self.model_config['torso'], self.observation_space.shape[0])
    self._torso = nn.Sequential(layers, nn.LazyLinear(hidden_size), nn.ReLU())
    self._torso(self._image(Tensor(self.observation_space.sample())[None]))
    self._policy = nn.Linear(hidden_size, int(self.action_space.n))
    self._value = nn.Linear(hidden_size, 1)

  @staticmethod
  def _image(observation: Tensor) -> Tensor:
    return observation.float() / 255.0

  def _forward(self, batch: dict[str, Any], **arguments: Any) -> dict[str, Tensor]:
    embeddings = self._torso(self._image(batch[Columns.OBS]))
    return {
      Columns.EMBEDDINGS: embeddings,
      Columns.ACTION_DIST_INPUTS: self._policy(embeddings),
    }

  def compute_values(self, batch: dict[str, Any], embeddings: Tensor | None = None) -> Tensor:
    """Called by RLlib."""
    if embeddings is None:
      embeddings = self._torso(self._image(batch[Columns.OBS]))
    return self._value(embeddings).squeeze(-1)


def module(settings: dict[str, Any]) -> RLModuleSpec:
  """Returns the network; on CartPole, RLlib's own."""
  if settings['torso'] == 'mlp':
    return RLModuleSpec(
      model_config=DefaultModelConfig(
        fcnet_hiddens=list(settings['mlp_sizes']),
        fcnet_activation='relu',
        vf_share_layers=True,
      )
    )
  sizes = {name: settings[name] for name in ('torso', 'hidden_size')}
  return RLModuleSpec(module_class=ImageModule, model_config=sizes)


def configuration(settings: dict[str, Any]) -> IMPALAConfig:
  """Translates the settings into RLlib's configuration."""
  cartpole = settings['env'] == 'cartpole'
  return (
    IMPALAConfig()
    .environment('CartPole-v1' if cartpole else _ENV, clip_rewards=False)
    .env_runners(
      num_env_runners=settings['num_actors'],
      num_envs_per_env_runner=settings['envs_per_actor'],
      rollout_fragment_length=settings['unroll_length'],
      gym_env_vectorize_mode='vector_entry_point' if cartpole else 'sync',
    )
    .learners(num_learners=0, num_gpus_per_learner=0)
    .training(
      gamma=settings['discount'],
      lr=settings['learning_rate'],
      train_batch_size_per_learner=settings['batch_size'] * settings['unroll_length'],
      grad_clip=settings['max_gradient_norm'],
      grad_clip_by='global_norm',
      entropy_coeff=settings['entropy_cost'],
      vf_loss_coeff=settings['baseline_cost'],
      vtrace_clip_rho_threshold=1.0,
      vtrace_clip_pg_rho_threshold=1.0,
    )
    .rl_module(rl_module_spec=module(settings))
    .reporting(min_time_s_per_iteration=1, metrics_num_episodes_for_smoothing=100)
    .debugging(seed=settings['seed'])
  )


def main() -> None:
  """Trains."""
  settings = json.loads(sys.argv[1])
  # An actor reserves one of Ray's CPUs, however many the machine has.
  ray.init(
    num_cpus=settings['num_actors'] + 1,
    include_dashboard=False,
    _temp_dir=os.path.abspath('ray'),
  )
  register_env(_ENV, lambda config: games.make(settings))
  algorithm = configuration(settings).build_algo()
  progress = Progress(settings['started'])
  while True:
    result = algorithm.train()
    acted = result['env_runners']
    learned = result.get('learners', {}).get('__all_modules__', {})
    progress.tell(
      acted.get('num_env_steps_sampled_lifetime', 0),
      learned.get('num_env_steps_trained_lifetime', 0),
      acted.get('episode_return_mean', float('nan')),
    )


if __name__ == '__main__':
  main()
