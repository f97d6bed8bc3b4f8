"""Drills: measures which failures a training run survives, and what it loses.

python -m benchmarks.chaos                         Sebulba and R2D2 on Catch, 50 kills each
python -m benchmarks.chaos --programs=sebulba --kills=10
python -m benchmarks.chaos --drill=pause,suspend   other drills; --drill=all for every one
python -m benchmarks.chaos --hours=2               a run of two hours with kills throughout
python -m benchmarks.chaos --hours=2 -- --inference_nodes=1     with further flags for launch.py

kill      nodes are killed, alone and at random; the run is stopped and resumed (drills/kills.py)
pause     nodes are stopped and continued (drills/stopping.py)
suspend   the launcher, then the whole program, is stopped and continued (drills/stopping.py)
clock     the clock is set back by an hour (drills/clock.py)
disk      the disk of the run directory is full for a while; needs root (drills/disk.py)
network   packets are lost and delayed, then the network is down; needs root (drills/network.py)
children  nodes end whose environments have child processes (drills/children.py)
replicas  replicas of one learner are killed and stopped, and restart together (drills/replicas.py)

Exit code 0 if all checks hold, 1 if one fails, 2 if a drill is refused.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable

from absl import app, flags

from benchmarks.drills import children, clock, disk, kills, network, night, replicas, stopping
from benchmarks.drills.checks import Checks, Refused
from launchers.console import PlainConsole
from viewing import output

DRILLS: dict[str, Callable[[str, Checks], None]] = {
  'pause': functools.partial(stopping.stop_and_continue, stops=stopping.each_node),
  'suspend': functools.partial(stopping.stop_and_continue, stops=stopping.whole_program),
  'clock': clock.step_back,
  'disk': disk.fills_and_empties,
  'network': network.loses_and_delays,
  'children': children.end_with_their_node,
  'replicas': replicas.restart_together,
}
KILL, ALL = 'kill', 'all'
PASSED, FAILED, REFUSED = range(3)  # Exit codes.

_DRILL = flags.DEFINE_list('drill', [KILL], f'which: {KILL}, {", ".join(DRILLS)}, or {ALL}')
_PROGRAMS = flags.DEFINE_list(
  'programs', ['sebulba', 'r2d2'], 'programs that --drill=kill disturbs'
)
_KILLS = flags.DEFINE_integer(
  'kills', 50, 'random kills in each run of --drill=kill, after one of every node'
)
_PAUSE = flags.DEFINE_float(
  'pause', None, 'seconds between kills on average; 4 by default, 300 with --hours', lower_bound=0.1
)
_SEED = flags.DEFINE_integer('seed', 1, 'seed of the choice of nodes and pauses')
_DEADLINE = flags.DEFINE_float('deadline', 180.0, 'seconds that a recovery from a kill may take')
_JSON = flags.DEFINE_string('json', '', 'file for the figures of --drill=kill; empty: none')
_HOURS = flags.DEFINE_float(
  'hours', 0.0, 'length of a run that is disturbed throughout; 0: no such run', lower_bound=0.0
)
_DIRECTORY = flags.DEFINE_string(
  'directory', '', 'output directory of --hours; empty: runs/benchmarks/night-<time>'
)


def all_night(launch_flags: list[str]) -> bool:
  """Does the run of --hours; returns whether all checks hold."""
  directory = _DIRECTORY.value or time.strftime('runs/benchmarks/night-%Y%m%d-%H%M%S')
  return night.run(directory, _HOURS.value, _PAUSE.value or 300.0, _SEED.value, launch_flags)


def kill(directory: str, checks: Checks) -> None:
  """Kills the nodes of each program; see `benchmarks.drills.kills`."""
  console = PlainConsole(width=100)
  results = []
  for program in _PROGRAMS.value:
    result = kills.run(
      program, directory, _KILLS.value, _PAUSE.value or 4.0, _SEED.value, _DEADLINE.value
    )
    kills.show(result, console)
    kills.check(result, checks)
    results.append(result)
  if _JSON.value:
    with open(_JSON.value, 'w') as f:
      json.dump(results, f, indent=2)


def chosen(names: list[str]) -> list[str]:
  """Returns the drills that a flag's value names; raises ValueError if there is no such drill."""
  known = [KILL, *DRILLS]
  for name in names:
    if name not in (*known, ALL):
      raise ValueError(f'--drill={name}: there is no such drill; they are {", ".join(known)}.')
  return known if ALL in names else names


def run(name: str) -> int:
  """Does one drill in a new directory; returns PASSED, FAILED or REFUSED."""
  checks = Checks()
  print(f'{name}:', flush=True)
  directory = os.path.realpath(tempfile.mkdtemp(prefix='launchpod-chaos-'))
  try:
    {KILL: kill, **DRILLS}[name](directory, checks)
  except AssertionError as error:  # A wait timed out.
    checks.add(False, str(error))
  except Refused as error:
    print(f'error: --drill={name}: {error}', file=sys.stderr)
    return REFUSED
  if not checks.hold():
    print(f'its files are in {directory}')
    return FAILED
  shutil.rmtree(directory)
  return PASSED


def main(argv: list[str]) -> int:
  """Runs the drills that the flags select; returns the exit code."""
  try:
    if _HOURS.value:
      return PASSED if all_night(argv[1:]) else FAILED
    if argv[1:]:
      raise ValueError(f'{argv[1]!r} is not a flag; flags for launch.py are for --hours.')
    codes = {name: run(name) for name in chosen(_DRILL.value)}
  except ValueError as error:
    print(f'error: {error}', file=sys.stderr)
    return REFUSED
  for name, code in codes.items():
    print(f'{name}: {("passed", "FAILED", "refused")[code]}')
  return FAILED if FAILED in codes.values() else max(codes.values())


if __name__ == '__main__':
  app.run(lambda argv: output.run(lambda: main(argv)))
