"""Kills random nodes of a training run every few seconds, and counts what it survived and what it lost.

python -m benchmarks.chaos                        Sebulba and R2D2 on Catch, 50 kills each
python -m benchmarks.chaos --programs=sebulba --kills=10

Each program runs twice with the same options: undisturbed to its end, and disturbed: nodes chosen at
random are killed by SIGKILL, after random pauses and whether or not the ones before have recovered; then
the launcher gets SIGTERM, and the run is resumed and goes on to its end.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import random
import re
import signal
import statistics
import sys
import tempfile
import time
from typing import Any

import numpy as np
import psutil
from absl import app, flags
from rich.console import Console
from rich.table import Table

from benchmarks.running import RunningProgram, processes
from nodes import audit, curves

_PROGRAMS = flags.DEFINE_list('programs', ['sebulba', 'r2d2'], 'what to disturb')
_KILLS = flags.DEFINE_integer('kills', 50, 'nodes to kill in each run')
_PAUSE = flags.DEFINE_float('pause', 4.0, 'seconds between kills on average')
_SEED = flags.DEFINE_integer('seed', 1, 'of the choice of nodes and pauses')
_JSON = flags.DEFINE_string('json', '', 'file for the figures; empty: none')

NUM_STEPS = {'sebulba': 300_000, 'r2d2': 100_000}
OPTIONS = {
  'sebulba': [],
  'r2d2': ['--replay_checkpoint_period=5'],
}
COMMON = ['--checkpoint_period=2', '--audit', '--eval_period=20000']
PATIENT = '{restart_backoff: 0.2, max_restarts: 1000}'
# What may be on its way through the queue when a server dies: unrolls in the queue, in the reader, the
# prefetcher and the learner, and those of every stream that replay has not confirmed.
DONE = re.compile(r'done: evaluator_return=(\S+) actor_steps=(\d+) .*learner_steps=(\d+)')


@dataclasses.dataclass
class Kill:
  """One kill.

  Attributes:
    node: such as 'actor-0'.
    at: when, in seconds of `time.monotonic`.
    pid: of the process killed.
    seen: what the evidence of the node's work was then.
    recovered: seconds until the node worked again; None if it had not when the drill ended.
  """

  node: str
  at: float
  pid: int
  seen: int
  recovered: float | None = None


def evidence(run_dir: str, node: str) -> int:
  """Returns a number that grows while a node works: the size of what its work leaves behind."""
  if node.startswith(('replay', 'inference_learner')):
    path = os.path.join(run_dir, 'audit', audit.TRAINED)
  elif node.startswith('actor'):
    path = curves.csv_path(run_dir, node)
  else:
    path = curves.csv_path(run_dir, 'inference_learner/0')
  return os.path.getsize(path) if os.path.exists(path) else 0


def disturb(program: RunningProgram, kills: int, pause: float, rng: random.Random) -> list[Kill]:
  """Kills nodes at random and returns what came of each; waits until all have recovered."""
  done: list[Kill] = []
  due = time.monotonic()
  end = time.monotonic() + 150 + 10 * kills
  while len(done) < kills or any(k.recovered is None for k in done):
    assert program.launcher.poll() is None, program.end()[2]
    assert time.monotonic() < end, f'not recovered: {[k for k in done if k.recovered is None]}'
    nodes = program.nodes()
    if len(done) < kills and time.monotonic() >= due and nodes:
      node = rng.choice(sorted(nodes))
      kill = Kill(node, time.monotonic(), nodes[node].pid, evidence(program.run_dir, node))
      try:
        nodes[node].kill()
        done.append(kill)
      except psutil.NoSuchProcess:
        pass
      due = time.monotonic() + rng.uniform(0.25, 1.75) * pause
    for kill in done:
      if kill.recovered is None:
        process = nodes.get(kill.node)
        back = process is not None and process.pid != kill.pid
        if not back:
          kill.seen = evidence(program.run_dir, kill.node)
        elif evidence(program.run_dir, kill.node) > kill.seen:
          kill.recovered = time.monotonic() - kill.at
    time.sleep(0.05)
  return done


def run(program: str, run_dir: str, *more: str) -> tuple[float, int]:
  """Runs a program to its end undisturbed; returns the evaluator's return and learner steps."""
  running = RunningProgram(run_dir, f'--program={program}', *more)
  code, output, errors = running.end(timeout=1200)
  assert code == 0, errors
  done = DONE.search(output)
  assert done is not None, output
  return float(done[1]), int(done[3])


def account(run_dir: str) -> dict[str, Any]:
  """Follows every unroll of a queue by its id; see `benchmarks/README.md` for the terms."""
  produced = audit.read(run_dir, audit.PRODUCED)[:, 0]
  records = audit.read(run_dir, audit.TRAINED)
  trained = records[:, 0]
  known = set(trained.tolist())
  gaps, tails, gap_sizes = 0, 0, []
  for life in dict.fromkeys((produced >> 32).tolist()):
    ids = produced[produced >> 32 == life]
    lost = np.array([i not in known for i in ids.tolist()])
    edges = np.flatnonzero(np.diff(np.concatenate(([0], lost.astype(int), [0]))))
    for start, stop in edges.reshape(-1, 2).tolist():
      if stop == len(ids):
        tails += stop - start
      else:
        gaps += stop - start
        gap_sizes.append(stop - start)
  # A step that does not follow the one before it was learned by a learner that went back.
  back = np.flatnonzero(np.diff(records[:, 1]) < 0)
  undone = sum(int((records[: i + 1, 1] > records[i + 1, 1] - 1).sum()) for i in back)
  return {
    'produced': len(produced),
    'trained': len(known & set(produced.tolist())),
    'trained_twice': len(trained) - len(known),
    'foreign': len(known - set(produced.tolist())),
    'lost_with_the_learner': tails,
    'lost_with_replay': gaps,
    'largest_loss_with_replay': max(gap_sizes, default=0),
    'losses_with_replay': len(gap_sizes),
    'undone_by_going_back': undone,
  }


def drill(program: str, directory: str) -> dict[str, Any]:
  """Does both runs of one program; returns the figures."""
  flags_of = [*OPTIONS[program], *COMMON]
  calm_dir, wild_dir = (os.path.join(directory, f'{program}-{n}') for n in ('calm', 'wild'))
  steps = f'--num_steps={NUM_STEPS[program]}'
  calm, calm_steps = run(program, calm_dir, steps, f'--run_dir={calm_dir}', *flags_of)

  placement = os.path.join(directory, 'placement.yaml')
  groups = ('monitor', 'replay', 'inference_learner', 'actor', 'evaluator')
  with open(placement, 'w') as f:
    f.write('\n'.join(f'{group}: {PATIENT}' for group in groups))
  flags_of.append(f'--placement={placement}')
  wild = RunningProgram(
    wild_dir, f'--program={program}', '--num_steps=1000000000', f'--run_dir={wild_dir}', *flags_of
  )
  wild.wait_for_progress()
  wild.wait_until(wild.checkpoint_counts, 'a checkpoint')
  began = time.monotonic()
  kills = disturb(wild, _KILLS.value, _PAUSE.value, random.Random(_SEED.value))
  seconds = time.monotonic() - began
  wild.launcher.send_signal(signal.SIGTERM)
  code, _, errors = wild.end()
  assert code == 143, errors
  counts = wild.checkpoint_counts()
  more = f'--num_steps={max(NUM_STEPS[program], counts["actor_steps"] + 20_000)}'
  after, after_steps = run(
    program, wild_dir, f'--resume={wild_dir}', more, f'--placement={placement}'
  )
  killed: dict[str, list[float]] = collections.defaultdict(list)
  for kill in kills:
    killed[kill.node.rpartition('-')[0]].append(kill.recovered or float('inf'))
  return {
    'program': program,
    'kills': {
      group: {'survived': len(times), 'median': statistics.median(times), 'worst': max(times)}
      for group, times in sorted(killed.items())
    },
    'seconds_of_killing': seconds,
    'unrolls': account(wild_dir),
    'orphans': len(processes(directory)),
    'evaluator_return': {'undisturbed': calm, 'disturbed': after},
    'learner_steps': {'undisturbed': calm_steps, 'disturbed': after_steps},
  }


def show(result: dict[str, Any], console: Console) -> None:
  """Prints the tables of one program."""
  total = sum(k['survived'] for k in result['kills'].values())
  table = Table(title=f'{result["program"]}: {total} kills in {result["seconds_of_killing"]:.0f} s')
  for column in ('group', 'kills survived', 'recovery, median s', 'worst s'):
    table.add_column(column, justify='left' if column == 'group' else 'right')
  for group, k in result['kills'].items():
    table.add_row(group, str(k['survived']), f'{k["median"]:.1f}', f'{k["worst"]:.1f}')
  console.print(table)
  rest = Table(show_header=False)
  rows = {**result['unrolls'], 'orphan processes': result['orphans']}
  rows |= {f'evaluator_return, {n}': v for n, v in result['evaluator_return'].items()}
  rows |= {f'learner_steps, {n}': v for n, v in result['learner_steps'].items()}
  for name, value in rows.items():
    rest.add_row(name, f'{value:,}' if isinstance(value, int) else f'{value:.3g}')
  console.print(rest)


def main(argv: list[str]) -> None:
  """Runs the drill on each program."""
  console = Console(file=sys.stdout, width=100)
  with tempfile.TemporaryDirectory(prefix='launchpod-chaos-') as directory:
    results = []
    for program in _PROGRAMS.value:
      results.append(drill(program, directory))
      show(results[-1], console)
  if _JSON.value:
    with open(_JSON.value, 'w') as f:
      json.dump(results, f, indent=2)


if __name__ == '__main__':
  app.run(main)
