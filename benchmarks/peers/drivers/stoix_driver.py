"""Trains with the Sebulba IMPALA of a Stoix checkout; prints its progress as JSON lines.

python stoix_driver.py SETTINGS   JSON: the common settings, `script`, and `started`, in Unix time
"""

from __future__ import annotations

import json
import os
import sys
import types
from typing import Any

import envpool_games
from progress import Progress
from recent import RecentReturns

_TORSO = 'network.shared_network.pre_torso'


class Reporter:
  """A logger of Stoix: reports updates, and the episodes of its first actor."""

  def __init__(self, started: float, **names: str):
    del names  # Of files, which other loggers write.
    self._progress = Progress(started)
    self._returns = RecentReturns()

  def log_config(self, config: Any) -> None:
    """Called by Stoix."""

  def log_dict(self, data: dict[str, Any], step: int, eval_step: int, event: Any) -> None:
    """Called by Stoix, by one thread at a time."""
    if event.value == 'actor':
      count = int(data['num_completed_episodes_in_rollout_batch'])
      self._returns.add(count, count * float(data['episode_return']['mean']))
    elif event.value == 'trainer':
      self._progress.tell(step, step, self._returns.mean())

  def stop(self) -> None:
    """Called by Stoix."""


def values(settings: dict[str, Any]) -> dict[str, Any]:
  """Translates the settings into values of Stoix's configuration, by their path."""
  environments = settings['num_actors'] * settings['envs_per_actor']
  return {
    **(_cartpole(settings) if settings['env'] == 'cartpole' else _atari(settings)),
    'arch.seed': settings['seed'],
    'arch.total_num_envs': environments,
    'arch.total_timesteps': 1 << 40,
    'arch.num_evaluation': 0,
    'arch.evaluator_device_id': 0,
    'arch.actor.device_ids': [0],
    'arch.actor.actor_per_device': settings['num_actors'],
    'arch.learner.device_ids': [0],
    'system.rollout_length': settings['unroll_length'],
    'system.num_minibatches': environments // settings['batch_size'],
    'system.gamma': settings['discount'],
    'system.actor_lr': settings['learning_rate'],
    'system.critic_lr': settings['learning_rate'],
    'system.decay_learning_rates': False,
    'system.max_grad_norm': settings['max_gradient_norm'],
    'system.ent_coef': settings['entropy_cost'],
    'system.vf_coef': settings['baseline_cost'],
    'logger.loggers.console.enabled': False,
    'logger.loggers.peers': {
      '_target_': f'{__name__}.Reporter',
      'started': settings['started'],
    },
  }


def _cartpole(settings: dict[str, Any]) -> dict[str, Any]:
  return {
    _TORSO: {
      '_target_': 'stoix.networks.torso.MLPTorso',
      'layer_sizes': settings['mlp_sizes'],
      'activation': 'relu',
    }
  }


def _atari(settings: dict[str, Any]) -> dict[str, Any]:
  return {
    _TORSO: {'_target_': 'stoix_networks.Nature', 'hidden_size': settings['hidden_size']},
    'arch.actor.log_frequency': 1,
    'arch.learner.log_frequency': 1,
    'env.scenario.name': f'{settings["env"].partition(":")[2]}-v5',
    'env.kwargs': envpool_games.options(settings['game']),
  }


def without_trackers() -> None:
  """Puts empty modules in place of the packages that only Stoix's own loggers use."""
  for name in ('wandb', 'neptune', 'neptune.utils', 'tensorboard_logger'):
    sys.modules[name] = types.ModuleType(name)
  for module, function in (
    ('neptune.utils', 'stringify_unsupported'),
    ('tensorboard_logger', 'configure'),
    ('tensorboard_logger', 'log_value'),
  ):
    setattr(sys.modules[module], function, None)


def main() -> None:
  """Trains."""
  settings = json.loads(sys.argv[1])
  sys.path.insert(0, settings['script'])
  without_trackers()
  import hydra
  from omegaconf import OmegaConf
  from stoix.systems.impala.sebulba import ff_impala_shared_torso as impala

  # The import sets the variable. The newer runtime takes twice as long, and longer for convolutions.
  os.environ['XLA_FLAGS'] += ' --xla_cpu_use_thunk_runtime=false'
  family = 'cartpole' if settings['env'] == 'cartpole' else 'pong'
  configurations = os.path.join(settings['script'], 'stoix', 'configs')
  with hydra.initialize_config_dir(os.path.join(configurations, 'default', 'sebulba')):
    config = hydra.compose(
      'default_ff_impala_shared_torso.yaml',
      [f'hydra.searchpath=[file://{configurations}]', f'env=envpool/{family}'],
    )
  OmegaConf.set_struct(config, False)
  for name, value in values(settings).items():
    OmegaConf.update(config, name, value, merge=False)
  impala.run_experiment(config)


if __name__ == '__main__':
  main()
