"""Runs a declared list of learning experiments, and writes the page of their results.

python -m benchmarks.results                         every row of benchmarks/results/rows/
python -m benchmarks.results pong 'minatar/*'        rows, tasks or groups, by glob
python -m benchmarks.results --list                  the rows and their state; runs nothing
python -m benchmarks.results --render_only           the page from what is recorded; runs nothing
python -m benchmarks.results gymnax-minatar --scripts=purejaxrl=path/to/checkout

Each seed of a row is one launch of launch.py in runs/results/<row>/<seed>, one after the other, and one
of evaluate.py for the final parameters. The same command continues where it was stopped: it resumes what
was running, and skips what is recorded. A failed run is reported, and the others go on. A run that
another row reads is made first, and again if its directory is gone.

Exit code 0: all selected runs are recorded. 1: some are not. 2: the command is invalid. 130, 143: it was
stopped. docs/results gets a file of records for each task (data/), the figures, and the page, index.md.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.peers.scripts import parse as parse_scripts
from benchmarks.results import page, policies, selection, states
from benchmarks.results.declared import Entry, Group, Launch, Task
from benchmarks.results.places import Places
from benchmarks.results.runner import Runner
from benchmarks.running import ROOT
from rundir import run_directory
from viewing import output

_ROWS = str(ROOT / 'benchmarks' / 'results' / 'rows' / '__init__.py')
_DEFAULT = Places(str(ROOT / 'runs' / 'results'), str(ROOT / 'docs' / 'results'))


def _list(entries: Sequence[Entry], where: Places) -> None:
  """Prints the rows and their state."""
  for entry in entries:
    state = states.of_row(entry, where)
    seeds = f'{state.done} of {len(entry.row.seeds)} seeds'
    command = entry.row.shown_command(entry.name)
    print(f'{entry.name:<38} {state.words:<8} {seeds:<14} {command}')


def _keep(entries: Sequence[Entry], where: Places) -> None:
  """Keeps the policies of the rows that have one."""
  for entry in entries:
    if isinstance(entry.row, Launch):
      problem = policies.keep(entry, entry.row, where)
      print(f'{entry.name}: {problem or "policy kept in " + where.policy(entry)}', flush=True)


def _rows(path: str) -> tuple[Sequence[Task], Sequence[Group]]:
  """Returns the tasks and groups that a file declares.

  Raises:
    ValueError: there is no such file, or it declares none; one sentence.
  """
  if not os.path.isfile(path):
    raise ValueError(f'--rows={path} is not a file.')
  names: dict[str, Any] = runpy.run_path(path)
  if not names.get('TASKS'):
    raise ValueError(f'--rows={path} has no TASKS.')
  return names['TASKS'], names.get('GROUPS', ())


def _seeds(texts: Sequence[str], entries: Sequence[Entry]) -> list[int]:
  """Returns --seeds.

  Raises:
    ValueError: a seed is not a number, or a selected row does not declare it; one sentence.
  """
  if not all(text.isdigit() for text in texts):
    raise ValueError(f'--seeds={",".join(texts)} must be whole numbers: 1,2.')
  seeds = [int(text) for text in texts]
  for entry in entries:
    for seed in seeds:
      if seed not in entry.row.seeds:
        raise ValueError(f'--seeds={seed} is not declared for {entry.name}: {entry.row.seeds}.')
  return seeds


def _parse(argv: Sequence[str]) -> argparse.Namespace:
  """Returns the flags."""
  assert __doc__
  summary, _, text = __doc__.partition('\n')
  parser = argparse.ArgumentParser(
    prog='python -m benchmarks.results',
    description=summary,
    epilog=text,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  add = parser.add_argument
  add('names', nargs='*', help='rows, tasks or groups, by glob; all if left out')
  add('--list', action='store_true', help='print the rows and their state; run nothing')
  add('--render_only', action='store_true', help='write the page from what is recorded')
  add('--seeds', type=_split, default=[], help='run only these of the declared seeds: 1,2')
  add(
    '--keep_policies',
    action='store_true',
    help="copy each row's final parameters to docs/results/policies, if they are small",
  )
  add(
    '--scripts',
    type=_split,
    default=[],
    help='paths of peers that no package has: purejaxrl=path/to/checkout',
  )
  add('--wheels', default='', help='directory with a CPU build of PyTorch, for peers that use it')
  add('--rows', default=_ROWS, help='file with TASKS and GROUPS')
  add('--runs', default=_DEFAULT.runs, help='directory of the runs')
  add('--docs', default=_DEFAULT.docs, help='directory of the page and its data')
  return parser.parse_args(argv)


def _split(text: str) -> list[str]:
  return [part for part in text.split(',') if part]


def main(argv: Sequence[str]) -> int:
  """Runs the command; returns the exit code."""
  args = _parse(argv)
  where = Places(run_directory.absolute(args.runs), run_directory.absolute(args.docs))
  try:
    tasks, groups = _rows(args.rows)
    if args.rows != _ROWS and args.docs == _DEFAULT.docs:
      raise ValueError(f'--rows={args.rows} needs --docs, a directory for its page.')
    entries = selection.select(selection.entries(tasks), args.names)
    seeds, scripts = _seeds(args.seeds, entries), parse_scripts(args.scripts)
    if args.list:
      _list(entries, where)
      return 0
    page.render(tasks, groups, where)  # What is recorded can be read.
  except ValueError as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  failed: list[str] = []
  try:
    if not args.render_only:
      failed = Runner(where, scripts, args.wheels).run(entries, seeds)
    if args.keep_policies:
      _keep(entries, where)
  finally:
    page.write(page.render(tasks, groups, where), where)
    print(f'wrote {where.page}', flush=True)
  for line in failed:
    print(f'failed: {line}', file=sys.stderr)
  return 1 if failed else 0


if __name__ == '__main__':
  sys.exit(output.run(lambda: main(sys.argv[1:])))
