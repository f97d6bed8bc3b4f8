"""Runs the user's copy of Cleanba's IMPALA script; prints its progress as JSON lines.

python cleanba_driver.py SETTINGS   JSON: the common settings, `script`, and `started`, in Unix time
"""

from __future__ import annotations

import json
import runpy
import sys
from typing import Any

from printed import Listener
from progress import Progress


def arguments(settings: dict[str, Any]) -> list[str]:
  """Returns the settings as flags of the script."""
  environments = settings['num_actors'] * settings['envs_per_actor']
  values = {
    'env-id': f'{settings["env"].partition(":")[2]}-v5',
    'seed': settings['seed'],
    'num-actor-threads': settings['num_actors'],
    'local-num-envs': settings['envs_per_actor'],
    'num-steps': settings['unroll_length'],
    'num-minibatches': environments // settings['batch_size'],
    'gamma': settings['discount'],
    'learning-rate': settings['learning_rate'],
    'max-grad-norm': settings['max_gradient_norm'],
    'ent-coef': settings['entropy_cost'],
    'vf-coef': settings['baseline_cost'],
    'total-timesteps': 1 << 30,
    'log-frequency': 1,
  }
  return [*(f'--{name}={value}' for name, value in values.items()), '--no-anneal-lr']


def main() -> None:
  """Trains."""
  settings = json.loads(sys.argv[1])
  sys.argv = [settings['script'], *arguments(settings)]
  sys.stdout = Listener(Progress(settings['started']))
  runpy.run_path(settings['script'], run_name='__main__')


if __name__ == '__main__':
  main()
