"""The directory that a run leaves behind."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import re
import sys
import time
from typing import Any

_RECORDED = (
  'dm-launchpad',
  'dm-reverb',
  'tensorflow-cpu',
  'dm-acme',
  'dm-env',
  'jax',
  'jaxlib',
  'optax',
  'flax',
  'numpy',
)


def default_path(program: str, env: str) -> str:
  """Returns a new path under `runs/` that says what and when."""
  name = re.sub(r'[^A-Za-z0-9]+', '-', f'{program}-{env}')
  return os.path.join('runs', f'{name}-{time.strftime("%Y%m%d-%H%M%S")}-{os.getpid()}')


def create(path: str) -> str:
  """Makes the directory; returns its absolute path.

  Raises:
    ValueError: if it exists and is not empty, or cannot be written.
  """
  path = os.path.abspath(os.path.expanduser(path))
  try:
    os.makedirs(path, exist_ok=True)
    if os.listdir(path):
      raise ValueError(f'--run_dir={path} is not empty; name a new directory.')
    with open(os.path.join(path, '.writable'), 'w') as probe:
      probe.write('yes')
    os.remove(probe.name)
  except OSError as error:
    raise ValueError(f'--run_dir={path} cannot be written: {error.strerror}.') from error
  return path


def write_config(path: str, program: str, config: Any) -> None:
  """Writes `config.json`: the config as resolved, the command and the versions behind the run."""
  versions = {'python': sys.version.split()[0]}
  versions |= {name: importlib.metadata.version(name) for name in _RECORDED}
  record = {
    'program': program,
    'config': dataclasses.asdict(config),
    'command': sys.argv,
    'versions': versions,
  }
  with open(os.path.join(path, 'config.json'), 'w') as f:
    json.dump(record, f, indent=2)


def read_summary(path: str) -> dict[str, Any] | None:
  """Returns what the monitor wrote at the end of a run; None if it did not come to its end."""
  try:
    with open(os.path.join(path, 'summary.json')) as f:
      return json.load(f)
  except FileNotFoundError:
    return None


def result(path: str) -> str:
  """Returns one line with what came out of a run; empty if it did not come to its end."""
  summary = read_summary(path)
  if summary is None:
    return ''
  return (
    'done: evaluator_return={evaluator_return:.4g} actor_steps={actor_steps} '
    'environment_frames={environment_frames} learner_steps={learner_steps} '
    'run_dir={run_dir}'.format(**summary, run_dir=path)
  )
