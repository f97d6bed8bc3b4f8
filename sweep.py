"""Runs launch.py for a space of its flags and several seeds, and compares the trials.

python sweep.py FILE.yaml                  runs it, or continues where it was stopped
python sweep.py FILE.yaml --dry_run        checks every run and lists the trials; starts nothing
python sweep.py FILE.yaml --run_dir=DIR    the directory of the sweep; runs/<name of FILE> by default
python sweep.py FILE.yaml --jobs=4         programs at once; as many as the cores allow by default
python sweep.py FILE.yaml --retry_failed   also runs again what failed
python sweep.py FILE.yaml --table_only     writes the table from what has ended; starts nothing

Exit code 0: every run has ended well. 1: some failed. 2: the file is invalid. 130, 143: it was stopped.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence

import launch  # noqa: F401  It defines launch.py's flags.
from launchers import placement
from rundir import run_directory, secrets, sweep_directory
from sweeps import prepare, report, runner, spec, table
from sweeps.spec import Sweep
from viewing import command_line, output

_STOPPED = 128  # And the number of the signal.


def _parse(argv: Sequence[str]) -> argparse.Namespace:
  """Returns the flags; raises a one-sentence ValueError if they are invalid."""
  parser = command_line.parser(__doc__)
  add = parser.add_argument
  add('file', help='YAML file; see docs/sweeps.md')
  add('--dry_run', action='store_true', help='check every run and list the trials; start nothing')
  add('--run_dir', default='', help='directory of the sweep (runs/<name of the file>)')
  # The earlier name: a sweep is continued by the same command.
  add('--dir', dest='run_dir', default=argparse.SUPPRESS, help=argparse.SUPPRESS)
  add('--jobs', type=int, default=0, help='programs at once; 0: as many as the cores allow (0)')
  add('--retry_failed', action='store_true', help='also run again what failed')
  add('--table_only', action='store_true', help='write the table from what has ended')
  args = parser.parse_args(argv)
  if args.jobs < 0:
    raise ValueError(f'--jobs={args.jobs} must be at least 1, or 0 for as many as the cores allow.')
  if not args.run_dir:
    args.run_dir = os.path.join('runs', os.path.splitext(os.path.basename(args.file))[0])
  args.run_dir = run_directory.absolute(args.run_dir)
  return args


def _preview(sweep: Sweep, directory: str, jobs: int, why: str) -> None:
  seeds = ', '.join(map(str, sweep.seeds))
  print(f'trials: {sweep.search}, {jobs} runs at once ({why})')
  print(f'seeds: {seeds}')
  print(f'metric: {sweep.metric.title}, {sweep.metric.goal}')
  print(f'directory: {directory}')
  for i, values in enumerate(sweep.trials if sweep.chosen else [], 1):
    words = secrets.masked_command(sweep.command(values))
    print(f'trial {i}: launch.py {shlex.join(words)}')


def _table_only(sweep: Sweep, directory: str) -> int:
  """Writes the table of what has ended; returns the exit code."""
  record = sweep_directory.read(directory)
  if record is None:
    raise ValueError(f'--run_dir={directory} has no sweep yet; leave --table_only out.')
  prepare.check_flags(sweep, directory, record)
  rows = report.write(sweep, directory, prepare.trials_of(sweep, record))
  print('\n'.join(table.as_markdown(sweep, rows)), end='')
  return int(any(row.failures(sweep.metric) for row in rows))


def main(argv: Sequence[str]) -> int:
  """Runs the command; returns the exit code."""
  os.environ.update(placement.NO_PROXY)
  try:
    args = _parse(argv)
    sweep = spec.parse(spec.load(args.file), args.file)
    if args.table_only:
      return _table_only(sweep, args.run_dir)
    jobs, why = prepare.checked(sweep)
    if args.jobs:
      jobs, why = args.jobs, 'as --jobs says'
    if args.dry_run:
      prepare.check_directory(sweep, args.run_dir)
      _preview(sweep, args.run_dir, jobs, why)
      return 0
    record = prepare.claim(sweep, args.run_dir)
    print(f'{args.run_dir}: {sweep.search}, {jobs} runs at once ({why})', flush=True)
    code, rows, said = runner.run(sweep, args.run_dir, record, jobs, args.retry_failed)
  except BrokenPipeError:
    raise
  except (ValueError, OSError) as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  print('\n'.join(['', *table.as_markdown(sweep, rows)]), end='')
  print(said)
  if code >= _STOPPED:
    print('to resume: the same command', file=sys.stderr)
  return code


if __name__ == '__main__':
  sys.exit(output.run(lambda: main(sys.argv[1:])))
