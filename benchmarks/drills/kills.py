"""Drill: kills nodes of a program every few seconds; counts recoveries and losses.

The program runs twice with the same options. The first run is undisturbed. In the second, the drill
sends SIGKILL to every node once, each when the previous one has recovered. It then kills random nodes,
recovered or not. Finally the launcher gets SIGTERM, and the run is resumed and continues to its end.
"""

from __future__ import annotations

import dataclasses
import os
import random
import re
import signal
import statistics
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.drills import unrolls
from benchmarks.drills.checks import Checks
from benchmarks.drills.subject import evidence
from benchmarks.running import RunningProgram, processes
from programs import registry
from programs.options import configs

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
    at: time of the kill, by `time.monotonic`.
    pid: id of the killed process.
    seen: evidence of the node's work at the kill.
    recovered: seconds until the node worked again; None if it did not before the drill ended.
  """

  node: str
  at: float
  pid: int
  seen: int
  recovered: float | None = None


class Killing:
  """Kills nodes of a program and measures their recoveries."""

  def __init__(self, program: RunningProgram, deadline: float):
    """Initialises without a kill.

    Args:
      program: the program whose nodes are killed.
      deadline: timeout of a recovery, in seconds.
    """
    self._program = program
    self._deadline = deadline
    self.kills: list[Kill] = []

  def kill(self, node: str) -> None:
    """Kills a node, unless it is already down."""
    process = self._program.nodes().get(node)
    if process is not None:
      seen = evidence(self._program.run_dir, node)
      self.kills.append(Kill(node, time.monotonic(), process.pid, seen))
      process.kill()

  def follow(self, until: Callable[[], bool]) -> None:
    """Records recoveries until `until()` is true."""
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
    """Waits until all killed nodes have recovered."""
    end = time.monotonic() + self._deadline

    def recovered() -> bool:
      left = [kill for kill in self.kills if kill.recovered is None]
      assert time.monotonic() < end, f'not recovered: {left}'
      return not left

    self.follow(recovered)


def one_by_one(program: RunningProgram, deadline: float) -> list[Kill]:
  """Kills every node once, each when the previous one has recovered."""
  killing = Killing(program, deadline)
  for node in sorted(program.nodes()):
    killing.kill(node)
    killing.follow_to_the_end()
  return killing.kills


def at_random(
  program: RunningProgram, kills: int, pause: float, rng: random.Random, deadline: float
) -> list[Kill]:
  """Kills random nodes after pauses around `pause` seconds, recovered or not."""
  killing = Killing(program, deadline)
  while len(killing.kills) < kills:
    if nodes := sorted(program.nodes()):
      killing.kill(rng.choice(nodes))
    due = time.monotonic() + rng.uniform(0.25, 1.75) * pause
    killing.follow(lambda due=due: time.monotonic() > due)  # type: ignore[misc]
  killing.follow_to_the_end()
  return killing.kills


def _undisturbed(program: str, run_dir: str, *more: str) -> tuple[float, int]:
  """Runs a program to its end; returns the evaluator's return and learner steps."""
  running = RunningProgram(run_dir, f'--program={program}', *more)
  try:
    code, output, errors = running.end(timeout=1200)
  finally:
    running.kill()
  assert code == 0, errors
  done = DONE.search(output)
  assert done is not None, output
  return float(done[1]), int(done[3])


def _ruled(program: str) -> list[str]:
  """Returns flags for what the preset's rules choose in the undisturbed run, for both runs."""
  module = registry.load(program)
  config = configs.resolve(module, {'num_steps': NUM_STEPS[program]})
  return [
    f'--{name}={value}' for name, value in configs.options_set_by_rules(module, config).items()
  ]


def run(
  program: str, directory: str, kills: int, pause: float, seed: int, deadline: float
) -> dict[str, Any]:
  """Does both runs of one program; returns the figures.

  Args:
    program: a key of `OPTIONS`.
    directory: an existing directory for both runs.
    kills: number of random kills, beyond one of every node.
    pause: mean seconds between random kills.
    seed: seed of the choice of nodes and pauses.
    deadline: timeout of a recovery, in seconds.
  """
  flags_of = [*OPTIONS[program], *COMMON, *_ruled(program)]
  calm_dir, wild_dir = (os.path.join(directory, f'{program}-{n}') for n in ('calm', 'wild'))
  steps = f'--num_steps={NUM_STEPS[program]}'
  calm, calm_steps = _undisturbed(program, calm_dir, steps, f'--run_dir={calm_dir}', *flags_of)

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
    alone = one_by_one(wild, deadline)
    many = at_random(wild, kills, pause, random.Random(seed), deadline)
    seconds = time.monotonic() - began
    wild.launcher.send_signal(signal.SIGTERM)
    code, _, errors = wild.end()
  finally:
    wild.kill()
  assert code == 143, errors
  counts = wild.checkpoint_counts()
  more = f'--num_steps={max(NUM_STEPS[program], counts["actor_steps"] + 20_000)}'
  after, after_steps = _undisturbed(
    program, wild_dir, f'--resume={wild_dir}', more, f'--placement={placement}'
  )
  replay_kills = sum(kill.node.startswith('replay') for kill in alone + many)
  return {
    'program': program,
    'kills': {
      group: {'alone': recoveries(alone, group), 'at random': recoveries(many, group)}
      for group in groups
    },
    'seconds_of_killing': seconds,
    'unrolls': unrolls.account(wild_dir, replay_kills) if program == 'sebulba' else {},
    'orphans': len(processes(directory)),
    'evaluator_return': {'undisturbed': calm, 'disturbed': after},
    'learner_steps': {'undisturbed': calm_steps, 'disturbed': after_steps},
  }


def recoveries(kills: list[Kill], group: str) -> list[float]:
  """Returns the recovery times, in seconds, of the nodes of a group."""
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


def check(result: dict[str, Any], checks: Checks) -> None:
  """Adds the checks of one program's figures."""
  name, account = result['program'], result['unrolls']
  checks.add(not result['orphans'], f'{name}: no process is left ({result["orphans"]})')
  if account:
    wrong = {n: account[n] for n in ('unaccounted', 'trained_twice', 'foreign') if account[n]}
    checks.add(not wrong, f'{name}: no unroll is unaccounted for (but: {wrong})')
