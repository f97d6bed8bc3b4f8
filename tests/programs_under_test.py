"""Small programs, and launch.py as a user runs it, for tests of training and of rejected flags."""

from __future__ import annotations

import csv
import json
import os
import pathlib
import re
import subprocess
import sys
from unittest import mock

import pytest
from absl import flags as absl_flags

import launch as launcher
from benchmarks.running import processes
from programs.options import early, playable
from programs.options import flags as config_flags
from tests.waiting import DEADLINE

ROOT = pathlib.Path(__file__).parent.parent
DONE = re.compile(
  r'done: evaluator_return=(\S+) actor_steps=(\d+) environment_frames=(\d+) learner_steps=(\d+) '
  r'seconds=[\d.]+ run_dir=(\S+)'
)
# What launch.py prints on a busy machine alone.
NOTICE = re.compile(r'^still .*, after \d+ s\n', re.MULTILINE)
# One actor and a few updates.
SMALL = (
  '--num_steps=2000',
  '--num_actors=1',
  '--envs_per_actor=8',
  '--batch_size=4',
  '--eval_episodes=10',
)
SMALL_REPLAY = ('--burn_in=4', '--unroll_length=10', '--min_replay_size=16', '--replay_size=64')
SMALL_SEARCH = ('--num_simulations=2', '--updates_per_batch=2', '--min_replay_size=16')
# Possible mean returns of ten whole episodes of Catch, each with return 1 or -1.
CATCH_RETURNS = {round(k / 5 - 1, 1) for k in range(11)}
# Use after SMALL for a program that a test stops.
ENDLESS = '--num_steps=1000000000'
# Small programs take longer to compile than to compute.
ENVIRONMENT = {'JAX_PLATFORMS': 'cpu', 'JAX_DISABLE_MOST_OPTIMIZATIONS': '1'}


def launch(*flags: str, timeout: float = DEADLINE) -> subprocess.CompletedProcess[str]:
  """Runs launch.py in a separate process; returns the finished process.

  A test that trains a program must use the fixture `train` instead, which marks the test.
  """
  process = subprocess.run(
    [sys.executable, 'launch.py', *flags],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=timeout,
    stdin=subprocess.DEVNULL,
    # An unreachable proxy, which nodes must not use.
    env={**os.environ, **ENVIRONMENT, 'http_proxy': 'http://127.0.0.1:9'},
  )
  process.stderr = NOTICE.sub('', process.stderr)
  return process


def run_main(*flags: str) -> int:
  """Runs the main function of launch.py in this process; returns the exit code."""
  saved = absl_flags.FLAGS  # Every test parses its own command line.
  saved.unparse_flags()
  for name in list(saved):
    saved[name].unparse()
  # Isolation, which --launcher=local alone has, would exec another program in this process.
  elsewhere = any(flag.startswith('--launcher=') for flag in flags)
  isolate = [] if elsewhere else ['--isolate=no']
  try:
    words = early.with_flagfiles(['launch.py', *isolate, *flags])
    config_flags.define(*early.choice_or_all(words))
    command = config_flags.parse(early.expanded(words))
  except ValueError as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  with mock.patch.object(playable, 'NOTICE_SECONDS', 600.0):  # A busy machine prints nothing else.
    return launcher.main(command)


def log_text(run_dir: pathlib.Path) -> str:
  """Returns the text of all node logs of a run."""
  return ''.join(path.read_text() for path in (run_dir / 'logs').glob('*.log'))


def assert_ended(
  run_dir: pathlib.Path, printed: str, program: str, asker: str, number: int, learner: str
) -> float:
  """Asserts the last line of launch.py and the files of a run of SMALL.

  Args:
    run_dir: run directory.
    printed: stdout of launch.py.
    program: name of the program.
    asker: the group that sends requests to `learner`.
    number: number of nodes in that group.
    learner: the group that learns.

  Returns:
    The mean return of the final evaluation.
  """
  done = DONE.fullmatch(printed.splitlines()[-1])
  evaluator_return, actor_steps, frames, learner_steps, said_dir = done.groups()
  assert int(actor_steps) >= 2000 and actor_steps == frames
  # 2000 steps of 8 environments are 12 unrolls of each, or 24 updates, less the unrolls in flight at
  # the end: those of IMPALA's actors count later than their steps.
  assert int(learner_steps) >= 15
  assert said_dir == str(run_dir)
  assert processes(str(run_dir)) == []

  config = json.loads((run_dir / 'config.json').read_text())
  assert (config['program'], config['config']['num_steps']) == (program, 2000)
  assert config['versions']['jax']
  assert json.loads((run_dir / 'summary.json').read_text())['learner_steps'] == int(learner_steps)
  assert (run_dir / 'learning_curve.png').read_bytes().startswith(b'\x89PNG')
  assert f'{asker} -->|{number}| {learner}' in (run_dir / 'graph.md').read_text()
  assert re.search(f'{number} x (Impala)?Actor', (run_dir / 'graph.svg').read_text())
  assert (run_dir / 'params' / 'final.msgpack').stat().st_size > 1000
  assert list((run_dir / 'tensorboard').iterdir())
  with open(run_dir / 'logs' / 'evaluator-0.csv') as f:
    last = list(csv.DictReader(f))[-1]
  assert float(last['evaluator_return']) == pytest.approx(float(evaluator_return), rel=1e-3)
  return float(evaluator_return)


def assert_logs(run_dir: pathlib.Path, *nodes: str) -> None:
  """Asserts that exactly `nodes` and the nodes of every actor program have logs, without traceback."""
  logs = {path.stem for path in (run_dir / 'logs').glob('*.log')}
  assert logs == {'actor-0', 'evaluator-0', 'monitor-0', 'replay-0', *nodes}
  assert 'Traceback' not in log_text(run_dir)
