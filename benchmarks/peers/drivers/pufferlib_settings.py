"""The common settings in the words of PufferLib."""

from __future__ import annotations

from typing import Any


def configuration(settings: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
  """Returns PuffeRL's configuration.

  Args:
    settings: the common settings.
    own: PufferLib's defaults.
  """
  sizes = {
    'env': settings['env'],
    'seed': settings['seed'],
    'device': 'cpu',
    'use_rnn': False,
    'batch_size': 'auto',
    'bptt_horizon': settings['unroll_length'],
    'minibatch_size': settings['batch_size'] * settings['unroll_length'],
    'total_timesteps': 1 << 40,
    'checkpoint_interval': 1 << 30,
  }
  if settings.get('own_training'):
    return {**own, **sizes}
  common = {
    'update_epochs': 1,
    'optimizer': 'adam',
    'anneal_lr': False,
    'learning_rate': settings['learning_rate'],
    'adam_beta1': 0.9,
    'adam_beta2': 0.999,
    'adam_eps': 1e-8,
    'gamma': settings['discount'],
    'gae_lambda': 0.95,
    'max_grad_norm': settings['max_gradient_norm'],
    'ent_coef': settings['entropy_cost'],
    'vf_coef': settings['baseline_cost'],
  }
  return {**own, **common, **sizes}
