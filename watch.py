"""Shows the progress and results of runs, from their directories alone.

python watch.py RUN_DIR                     figures and curves, until the run ends (or Ctrl-C)
python watch.py RUN_DIR RUN_DIR ...         side by side, with the options that differ
python watch.py RUN_DIR ... --png=out.png   writes their curves to one picture and exits
python watch.py RUN_DIR --stacks            prints the stacks of every node and exits; the run continues
python watch.py RUN_DIR --stacks=actor/3    the same for one node

A run may be on another machine if this one can read its directory.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence

from rich.live import Live

from rundir import curves, node_files, run_directory
from viewing import output, progress, screen, stacks
from viewing.progress import Progress

_LINE_SECONDS = 5.0


def _going_on(runs: list[Progress]) -> bool:
  for run in runs:
    run.update()
  return any(run.state == progress.GOING_ON for run in runs)


def _follow(runs: list[Progress], period: float) -> None:
  """Shows runs until all have ended or stopped: a live table on a terminal, lines elsewhere."""
  console = output.Pipe()
  if sys.stdout.isatty():
    with Live(console=console, refresh_per_second=4) as live:
      while True:
        going_on = _going_on(runs)
        live.update(screen.show(runs, console))
        if not going_on:
          break
        time.sleep(period)
  else:
    due = 0.0
    while _going_on(runs):
      if time.monotonic() >= due:
        due = time.monotonic() + _LINE_SECONDS
        print(*map(screen.line, runs), sep='\n', flush=True)
      time.sleep(period)
    console.print(screen.show(runs, console))
  for run in runs:
    stopped = f'{run.name}: stopped before its end; {node_files.directory(run.run_dir)} says why'
    print(run_directory.result(run.run_dir) or stopped)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
  assert __doc__
  summary, _, examples = __doc__.partition('\n')
  parser = argparse.ArgumentParser(
    description=summary,
    epilog=examples,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  parser.add_argument('run_dir', nargs='+', help='directory of a run')
  parser.add_argument('--png', default='', help='write the curves to this PNG file and exit')
  parser.add_argument(
    '--stacks', nargs='?', const='', metavar='NODE', help='print the stacks of the nodes and exit'
  )
  parser.add_argument(
    '--web', action='store_true', help='serve a page on 127.0.0.1 until Ctrl-C; print its address'
  )
  parser.add_argument('--port', type=int, default=0, help='port of the page; 0: a free one (0)')
  parser.add_argument('--socket', default='', help='Unix socket to serve the page on, not a port')
  parser.add_argument('--period', type=float, default=2.0, help='seconds between two reads (2)')
  args = parser.parse_args(argv)
  if args.png and not args.png.endswith('.png'):
    raise ValueError(f'--png={args.png} must end in .png.')
  if not args.web and (args.port or args.socket):
    raise ValueError('--port and --socket are for --web; add it.')
  if not 0 < args.period < math.inf:
    raise ValueError(f'--period={args.period} must be a finite number above 0.')
  return args


def _draw(runs: list[Progress], path: str) -> None:
  try:
    curves.draw_all([run.run_dir for run in runs], path)
  except OSError as error:
    raise ValueError(f'--png={path} cannot be written: {error.strerror}.') from error


def _print_stacks(run_dirs: Sequence[str], node: str) -> None:
  for run_dir in run_dirs:
    for name, text in stacks.collect(run_dir, node):
      print(f'--- {name}\n{text or "(no answer: the process is stopped, or has ended)"}')


def main(argv: Sequence[str]) -> int:
  """Runs the command; returns the exit code."""
  try:
    args = _parse(argv)
    if args.stacks is not None:
      _print_stacks(args.run_dir, args.stacks)
      return 0
    if args.web:
      from viewing.web import server

      server.serve(args.run_dir, args.port, args.socket, lambda line: print(line, flush=True))
      return 0
    runs = [Progress(run_dir) for run_dir in args.run_dir]
    if args.png:
      _draw(runs, args.png)
    else:
      _follow(runs, args.period)
  except ValueError as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  except KeyboardInterrupt:
    return 130
  return 0


if __name__ == '__main__':
  sys.exit(output.run(lambda: main(sys.argv[1:])))
