"""Kills random nodes of a training run every few seconds, and counts what it survived and what it lost.

python -m benchmarks.chaos                        Sebulba and R2D2 on Catch, 50 kills each
python -m benchmarks.chaos --programs=sebulba --kills=10

python -m benchmarks.chaos --hours=2              a run of two hours, with kills all along
python -m benchmarks.chaos --hours=2 -- --inference_nodes=1     with further flags for launch.py

Without --hours, each program runs twice with the same options: undisturbed to its end, and disturbed:
every node is killed once by SIGKILL, when the one before has recovered, then nodes chosen at random,
whether or not the ones before have recovered. The launcher gets SIGTERM, and the run is resumed and
goes on to its end.
"""

from __future__ import annotations

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
from collections.abc import Callable
from typing import Any

from absl import app, flags
from rich.console import Console
from rich.table import Table

from benchmarks.drills import night as night_run
from benchmarks.drills import unrolls
from benchmarks.running import RunningProgram, processes
from nodes import audit, curves

_PROGRAMS = flags.DEFINE_list('programs', ['sebulba', 'r2d2'], 'what to disturb')
_KILLS = flags.DEFINE_integer('kills', 50, 'nodes to kill in each run')
_PAUSE = flags.DEFINE_float(
  'pause', None, 'seconds between kills on average; 4 by default, 300 with --hours', lower_bound=0.1
)
_SEED = flags.DEFINE_integer('seed', 1, 'of the choice of nodes and pauses')
_DEADLINE = flags.DEFINE_float('deadline', 180.0, 'seconds that a recovery may take')
_JSON = flags.DEFINE_string('json', '', 'file for the figures; empty: none')
_HOURS = flags.DEFINE_float(
  'hours', 0.0, 'that a run takes which is disturbed all along; 0: no such run', lower_bound=0.0
)
_DIRECTORY = flags.DEFINE_string(
  'directory', '', 'for what the run of --hours leaves; empty: runs/benchmarks/night-<time>'
)

NUM_STEPS = {'sebulba': 300_000, 'r2d2': 100_000}
OPTIONS = {
  'sebulba': [],
  'r2d2': ['--replay_checkpoint_period=5'],
}
COMMON = ['--checkpoint_period=2', '--audit', '--eval_period=20000']
PATIENT = '{restart_backoff: 0.2, max_restarts: 1000}'
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
  elif node.startswith(('actor', 'evaluator')):
    path = curves.csv_path(run_dir, node)
  else:
    path = curves.csv_path(run_dir, 'inference_learner/0')
  return os.path.getsize(path) if os.path.exists(path) else 0


class Drill:
  """Kills nodes of a program and follows how each comes back."""

  def __init__(self, program: RunningProgram):
    self._program = program
    self.kills: list[Kill] = []

  def kill(self, node: str) -> None:
    """Kills a node, unless it is down already."""
    process = self._program.nodes().get(node)
    if process is not None:
      seen = evidence(self._program.run_dir, node)
      self.kills.append(Kill(node, time.monotonic(), process.pid, seen))
      process.kill()

  def follow(self, until: Callable[[], bool]) -> None:
    """Notes recoveries until a function says that it is enough."""
    program = self._program
    while not until():
      assert program.launcher.poll() is None, program.end()[2]
      nodes = program.nodes()
      for kill in self.kills:
        if kill.recovered is None:
          process = nodes.get(kill.node)
          seen = evidence(program.run_dir, kill.node)
          if process is None or process.pid == kill.pid:
            kill.seen = seen
          elif seen > kill.seen:
            kill.recovered = time.monotonic() - kill.at
      time.sleep(0.05)

  def follow_to_the_end(self) -> None:
    """Waits until everything has recovered."""
    end = time.monotonic() + _DEADLINE.value

    def recovered() -> bool:
      left = [kill for kill in self.kills if kill.recovered is None]
      assert time.monotonic() < end, f'not recovered: {left}'
      return not left

    self.follow(recovered)


def one_by_one(program: RunningProgram) -> list[Kill]:
  """Kills every node once, each when the one before has recovered."""
  drill = Drill(program)
  for node in sorted(program.nodes()):
    drill.kill(node)
    drill.follow_to_the_end()
  return drill.kills


def at_random(program: RunningProgram, kills: int, pause: float, rng: random.Random) -> list[Kill]:
  """Kills nodes after pauses around `pause` seconds, whether or not the ones before have recovered."""
  drill = Drill(program)
  while len(drill.kills) < kills:
    if nodes := sorted(program.nodes()):
      drill.kill(rng.choice(nodes))
    due = time.monotonic() + rng.uniform(0.25, 1.75) * pause
    drill.follow(lambda due=due: time.monotonic() > due)  # type: ignore[misc]
  drill.follow_to_the_end()
  return drill.kills


def run(program: str, run_dir: str, *more: str) -> tuple[float, int]:
  """Runs a program to its end undisturbed; returns the evaluator's return and learner steps."""
  running = RunningProgram(run_dir, f'--program={program}', *more)
  code, output, errors = running.end(timeout=1200)
  assert code == 0, errors
  done = DONE.search(output)
  assert done is not None, output
  return float(done[1]), int(done[3])


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
  try:
    wild.wait_for_progress()
    wild.wait_until(wild.checkpoint_counts, 'a checkpoint')
    began = time.monotonic()
    alone = one_by_one(wild)
    kills = at_random(wild, _KILLS.value, _PAUSE.value or 4.0, random.Random(_SEED.value))
    seconds = time.monotonic() - began
    wild.launcher.send_signal(signal.SIGTERM)
    code, _, errors = wild.end()
  finally:
    wild.kill()
  assert code == 143, errors
  counts = wild.checkpoint_counts()
  more = f'--num_steps={max(NUM_STEPS[program], counts["actor_steps"] + 20_000)}'
  after, after_steps = run(
    program, wild_dir, f'--resume={wild_dir}', more, f'--placement={placement}'
  )
  replay_kills = sum(kill.node.startswith('replay') for kill in alone + kills)
  return {
    'program': program,
    'kills': {
      group: {'alone': recoveries(alone, group), 'at random': recoveries(kills, group)}
      for group in groups
    },
    'seconds_of_killing': seconds,
    'unrolls': unrolls.account(wild_dir, replay_kills) if program == 'sebulba' else {},
    'orphans': len(processes(directory)),
    'evaluator_return': {'undisturbed': calm, 'disturbed': after},
    'learner_steps': {'undisturbed': calm_steps, 'disturbed': after_steps},
  }


def recoveries(kills: list[Kill], group: str) -> list[float]:
  """Returns the seconds that each node of a group took to work again."""
  return [k.recovered or float('inf') for k in kills if k.node.rpartition('-')[0] == group]


def show(result: dict[str, Any], console: Console) -> None:
  """Prints the tables of one program."""
  total = sum(len(k['alone'] + k['at random']) for k in result['kills'].values())
  table = Table(title=f'{result["program"]}: {total} kills in {result["seconds_of_killing"]:.0f} s')
  for column in ('group', 'kills survived', 'recovery alone, s', 'at random, median', 'worst'):
    table.add_column(column, justify='left' if column == 'group' else 'right')
  for group, k in result['kills'].items():
    times = k['at random'] or [float('nan')]
    row = statistics.median(k['alone']), statistics.median(times), max(times)
    table.add_row(group, str(len(k['alone'] + k['at random'])), *(f'{x:.1f}' for x in row))
  console.print(table)
  rest = Table(show_header=False)
  rows = {**result['unrolls'], 'orphan processes': result['orphans']}
  rows |= {f'evaluator_return, {n}': v for n, v in result['evaluator_return'].items()}
  rows |= {f'learner_steps, {n}': v for n, v in result['learner_steps'].items()}
  for name, value in rows.items():
    rest.add_row(name, f'{value:,}' if isinstance(value, int) else f'{value:.3g}')
  console.print(rest)


def night(launch_flags: list[str]) -> bool:
  """Does the run of --hours; returns whether it was as it should be."""
  directory = _DIRECTORY.value or time.strftime('runs/benchmarks/night-%Y%m%d-%H%M%S')
  return night_run.run(directory, _HOURS.value, _PAUSE.value or 300.0, _SEED.value, launch_flags)


def main(argv: list[str]) -> None:
  """Runs the drill on each program."""
  for number in (signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) is not signal.SIG_IGN:  # As under nohup.
      signal.signal(number, lambda number, frame: sys.exit(128 + number))
  try:
    if _HOURS.value:
      sys.exit(0 if night(argv[1:]) else 1)
    if argv[1:]:
      raise ValueError(f'{argv[1]!r} is no flag; flags for launch.py are for --hours.')
  except ValueError as error:
    print(f'error: {error}', file=sys.stderr)
    sys.exit(2)
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
