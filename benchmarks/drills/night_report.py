"""The report of a run of hours: checks, figures, and a table of growth."""

from __future__ import annotations

import glob
import itertools
import json
import os
import re
import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks import own
from benchmarks.drills import flatness, sampler, unrolls
from benchmarks.drills.checks import Check
from benchmarks.drills.incarnations import Seen
from benchmarks.running import processes
from rundir import curves
from rundir.roles import EVALUATOR

# The default of launch.py's --node_timeout.
NODE_TIMEOUT_SECONDS = 300
DONE = re.compile(r'done: .*evaluator_return=(\S+) actor_steps=(\d+)')


def write(directory: str, seen: Seen, code: int, output: str, errors: str, hours: float) -> bool:
  """Writes and prints the report; returns whether all checks hold.

  Args:
    directory: directory of the drill, with `run` and `processes.csv`.
    seen: observations of the run.
    code: exit code of launch.py.
    output: stdout of launch.py.
    errors: stderr of launch.py.
    hours: planned duration of the run.
  """
  run_dir = os.path.join(directory, 'run')
  growths = flatness.growths(sampler.read(os.path.join(directory, 'processes.csv')))
  followed = _unrolls(run_dir, seen)
  gaps = _evaluation_gaps(run_dir)
  checks = _checks(run_dir, seen, code, output, growths, followed, gaps, hours)
  lines = [line for line in errors.splitlines() if line.strip()]
  files = filter(os.path.isfile, glob.glob(f'{glob.escape(run_dir)}/**', recursive=True))
  size = sum(map(os.path.getsize, files))
  figures = {
    'hours': seen.hours,
    'kills': seen.kills,
    'other ends of nodes': len(seen.surprises),
    'longest pause of training, s': seen.longest_pause,
    'seconds between evaluations, median': statistics.median(gaps) if gaps else float('nan'),
    'run directory, MiB': size / 2**20,
    'cores used by all processes': sum(row.cores for row in growths),
    **followed,
  }
  text = '\n'.join(
    [
      *map(str, checks),
      '',
      '| what | |',
      '|---|---|',
      *(f'| {name} | {_shown(value)} |' for name, value in figures.items()),
      '',
      flatness.table(growths),
    ]
  )
  with open(os.path.join(directory, 'report.md'), 'w') as f:
    f.write(text + '\n')
  with open(os.path.join(directory, 'report.json'), 'w') as f:
    json.dump(
      {
        'checks': [{'holds': check.holds, 'sentence': check.sentence} for check in checks],
        'figures': figures,
        'growths': [row._asdict() for row in growths],
        'surprises': seen.surprises,
        'launcher said': lines,
      },
      f,
      indent=2,
    )
  print(text)
  holds = all(check.holds for check in checks)
  if not holds:
    print('\n'.join(['', *seen.surprises, 'launch.py wrote to stderr:', *lines[-40:]]))
  print(f'{"passed" if holds else "FAILED"}; report.md and more in {directory}', flush=True)
  return holds


def _checks(
  run_dir: str,
  seen: Seen,
  code: int,
  output: str,
  growths: Sequence[flatness.Growth],
  followed: dict[str, Any],
  gaps: Sequence[float],
  hours: float,
) -> list[Check]:
  done = DONE.search(output)
  summary = os.path.exists(os.path.join(run_dir, 'summary.json'))
  lost = [each.node for each in seen.incarnations.never_back(seen.hours * 3600 - 60.0)]
  left = [p.pid for p in processes(run_dir) if own.is_of(p, run_dir)]
  grows = flatness.grows(growths)
  ending = f'exit code {code}, summary.json {"is" if summary else "is not"} there'
  checks = [
    Check(
      not seen.interrupted and code == 0 and done is not None and summary,
      f'it ends by itself, with exit code 0 and a summary ({seen.interrupted or ending})',
    ),
    Check(not lost, f'every killed node restarted (not: {lost})'),
    Check(
      not seen.surprises,
      f'no node ended that the drill did not kill ({len(seen.surprises)} did)',
    ),
    Check(
      seen.longest_pause < NODE_TIMEOUT_SECONDS,
      f'training never paused for {NODE_TIMEOUT_SECONDS} s ({seen.longest_pause:.0f} s at most)',
    ),
    Check(not grows, f'memory and descriptors are flat (not: {grows})'),
    Check(not left, f'no process is left (left: {left})'),
  ]
  if followed:
    wrong = {n: followed[n] for n in ('unaccounted', 'trained_twice', 'foreign') if followed[n]}
    checks.append(Check(not wrong, f'no unroll is unaccounted for (but: {wrong})'))
  if hours >= 1:
    checks.append(
      Check(
        bool(gaps) and max(gaps) > NODE_TIMEOUT_SECONDS,
        f'evaluations were further apart than {NODE_TIMEOUT_SECONDS} s (seconds: '
        f'{", ".join(f"{gap:.0f}" for gap in gaps)})',
      )
    )
  return checks


def _unrolls(run_dir: str, seen: Seen) -> dict[str, Any]:
  """Returns the account of all unrolls; {} if they are not tracked, as with a replay that repeats."""
  try:
    config = unrolls.config_of(run_dir)
  except OSError:
    return {}
  if not config.get('audit') or 'queue_size' not in config:
    return {}
  killed = [own.group(each.node) for each in seen.incarnations.all if each.killed is not None]
  return unrolls.account(run_dir, sum(group in ('replay', 'learner') for group in killed))


def _evaluation_gaps(run_dir: str) -> list[float]:
  """Returns the seconds between successive evaluations."""
  evaluators = curves.nodes(run_dir, EVALUATOR)[:1]
  rows = (curves.read(run_dir, node, 'seconds', 'evaluator_return') for node in evaluators)
  times = [second for found in rows for second, _ in found]
  return [after - before for before, after in itertools.pairwise(times)]


def _shown(value: float) -> str:
  return f'{value:,}' if isinstance(value, int) else f'{value:,.2f}'
