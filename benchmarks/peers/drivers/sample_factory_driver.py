"""Trains with Sample Factory's APPO; prints its progress as JSON lines until it is killed.

python sample_factory_driver.py SETTINGS   JSON: the common settings, `started`, in Unix time, and
                                           perhaps `options` of Sample Factory, which take precedence
"""

from __future__ import annotations

import functools
import json
import sys
from typing import Any

import games
from progress import Progress
from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner

_ENV = 'peers'


def arguments(settings: dict[str, Any]) -> dict[str, Any]:
  """Translates the settings into Sample Factory's options."""
  torsos = {
    'mlp': {'encoder_mlp_layers': settings['mlp_sizes']},
    'nature': {'encoder_conv_architecture': 'convnet_atari'},
    'impala': {'encoder_conv_architecture': 'resnet_impala'},
  }
  image = {'encoder_conv_mlp_layers': [settings['hidden_size']], 'obs_scale': 255.0}
  return {
    'algo': 'APPO',
    'env': _ENV,
    'experiment': 'run',
    'train_dir': '.',
    'device': 'cpu',
    'seed': settings['seed'],
    'num_workers': settings['num_actors'],
    'num_envs_per_worker': settings['envs_per_actor'],
    'rollout': settings['unroll_length'],
    'batch_size': settings['batch_size'] * settings['unroll_length'],
    'num_batches_per_epoch': 1,
    'num_epochs': 1,
    'with_vtrace': False,  # This release fails with it, in its summaries.
    'gamma': settings['discount'],
    'learning_rate': settings['learning_rate'],
    'lr_schedule': 'constant',
    'adam_eps': 1e-8,
    'max_grad_norm': settings['max_gradient_norm'],
    'exploration_loss': 'entropy',
    'exploration_loss_coeff': settings['entropy_cost'],
    # Our value loss is half of the squared error.
    'value_loss_coeff': 0.5 * settings['baseline_cost'],
    'reward_clip': settings['max_abs_reward'] or 1e9,
    'normalize_input': settings['normalize_observations'],
    'normalize_returns': False,
    'use_rnn': False,
    'nonlinearity': settings['activation'],
    'actor_critic_share_weights': not settings['separate_critic'],
    'adaptive_stddev': False,  # Our preset of continuous actions has a deviation of its own too.
    'env_frameskip': 1,  # The environment repeats actions: a step is a decision.
    'stats_avg': 100,
    **torsos[settings['torso']],
    **({} if settings['torso'] == 'mlp' else image),
  }


def command_line(values: dict[str, Any]) -> list[str]:
  """Returns the flags for Sample Factory's parser."""
  flags = []
  for name, value in values.items():
    several = value if isinstance(value, (list, tuple)) else [value]
    flags += [f'--{name}', *map(str, several)] if len(several) > 1 else [f'--{name}={several[0]}']
  return flags


class _Teller(AlgoObserver):
  """Reports the progress after each training step."""

  def __init__(self, progress: Progress):
    self._progress = progress

  def on_training_step(self, runner: Runner, training_iteration_since_resume: int) -> None:
    """Called by Sample Factory."""
    returns = runner.policy_avg_stats.get('reward', [()])[0]
    mean = sum(returns) / len(returns) if returns else float('nan')
    learned = runner.env_steps.get(0, 0)
    # Collected steps are reported only every three seconds, and are at most two batches ahead.
    self._progress.tell(learned, learned, mean)


def _make_env(
  settings: dict[str, Any], name: str, cfg: Any = None, config: Any = None, render_mode: Any = None
) -> Any:
  return games.make(settings)


def main() -> None:
  """Trains."""
  settings = json.loads(sys.argv[1])
  register_env(_ENV, functools.partial(_make_env, settings))
  options = settings.get('options', {})
  common = {name: v for name, v in arguments(settings).items() if name not in options}
  flags = command_line(common)
  parser, _ = parse_sf_args(argv=flags)
  parser.set_defaults(**options)  # Its flags do not take every schedule that its examples set.
  _, runner = make_runner(parse_full_cfg(parser, flags))
  runner.register_observer(_Teller(Progress(settings['started'])))
  runner.init()
  runner.run()


if __name__ == '__main__':
  main()
