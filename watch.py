"""Shows the progress and results of runs, from their directories alone.

python watch.py RUN_DIR                     figures and curves, until the run ends (or Ctrl-C)
python watch.py RUN_DIR RUN_DIR ...         side by side, with the options that differ
python watch.py SWEEP_DIR                   every run of a sweep
python watch.py RUN_DIR ... --png=out.png   writes their curves to one picture and exits
python watch.py RUN_DIR --stacks            prints the stacks of every node and exits; the run continues
python watch.py RUN_DIR --stacks=actor/3    the same for one node
python watch.py RUN_DIR ... --to=wandb      exports the runs to Weights & Biases, or --to=mlflow

A run may be on another machine if this one can read its directory.
"""

from __future__ import annotations

import argparse
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence

from rich.live import Live

from rundir import curves, node_files, run_directory, run_end, sweep_directory
from viewing import command_line, output, progress, screen, stacks
from viewing.progress import Progress
from viewing.trackers import environment, records

_LINE_SECONDS = 5.0


class _Watched:
  """Runs and sweeps; the runs of a sweep appear once they have begun.

  Attributes:
    runs: the runs, as of the last update.
  """

  def __init__(self, paths: Sequence[str]):
    """Reads the runs for the first time.

    Raises:
      ValueError: if a path is the directory of neither a run nor a sweep; one sentence.
    """
    self._paths = paths
    self._read: dict[str, Progress] = {}
    self.runs: list[Progress] = []
    self._look()

  def update(self) -> bool:
    """Reads what is new; returns whether a run or a sweep still runs."""
    is_running = any(map(sweep_directory.is_running, self._paths))
    self._look()
    for run in self.runs:
      run.update()
    return is_running or any(run.state == progress.RUNNING for run in self.runs)

  def _look(self) -> None:
    directories = sweep_directory.expanded(self._paths)
    for run_dir in directories:
      if run_dir not in self._read:
        self._read[run_dir] = Progress(run_dir)
    self._read = {run_dir: self._read[run_dir] for run_dir in directories}
    self.runs = list(self._read.values())


def _follow(watched: _Watched, period: float) -> None:
  """Shows runs until all have ended or stopped: a live table on a terminal, lines elsewhere."""
  console = output.Pipe()
  if sys.stdout.isatty():
    with Live(console=console, refresh_per_second=4) as live:
      while True:
        is_running = watched.update()
        live.update(screen.show(watched.runs, console))
        if not is_running:
          break
        time.sleep(period)
  else:
    due = 0.0
    while watched.update():
      if time.monotonic() >= due:
        due = time.monotonic() + _LINE_SECONDS
        print(*map(screen.line, watched.runs), sep='\n', flush=True)
      time.sleep(period)
    console.print(screen.show(watched.runs, console))
  for run in watched.runs:
    stopped = f'{run.name}: stopped before its end; {node_files.directory(run.run_dir)} says why'
    print(run_end.result(run.run_dir) or stopped)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
  parser = command_line.parser(__doc__)
  parser.add_argument('run_dir', nargs='+', help='directory of a run or a sweep')
  parser.add_argument('--png', default='', help='write the curves to this PNG file and exit')
  parser.add_argument(
    '--stacks', nargs='?', const='', metavar='NODE', help='print the stacks of the nodes and exit'
  )
  parser.add_argument(
    '--web', action='store_true', help='serve a page on 127.0.0.1 until Ctrl-C; print its address'
  )
  parser.add_argument('--port', type=int, default=0, help='port of the page; 0: a free one (0)')
  parser.add_argument('--socket', default='', help='Unix socket to serve the page on, not a port')
  parser.add_argument('--listener', type=int, help=argparse.SUPPRESS)  # A descriptor, by launch.py.
  parser.add_argument('--period', type=float, default=2.0, help='seconds between two reads (2)')
  to = parser.add_argument_group('export, with --to')
  to.add_argument('--to', choices=environment.TRACKERS, help='export the runs until they end')
  to.add_argument('--project', help='of W&B, or the experiment of MLflow (launchpod)')
  to.add_argument(
    '--every', type=float, help='seconds of a run whose measurements become their mean; 0: all (5)'
  )
  to.add_argument('--axis', choices=records.AXES, help='x axis of the curves (environment_frames)')
  args = parser.parse_args(argv)
  if args.png and not args.png.endswith('.png'):
    raise ValueError(f'--png={args.png} must end in .png.')
  if args.web and (args.png or args.stacks is not None):
    raise ValueError('--web is a command of its own; leave --png and --stacks out.')
  if args.port and args.socket:
    raise ValueError(f'--port={args.port} and --socket are two addresses; leave one out.')
  if not args.web and (args.port or args.socket):
    raise ValueError('--port and --socket are for --web; add it.')
  if not 0 < args.period < math.inf:
    raise ValueError(f'--period={args.period} must be a finite number above 0.')
  if not args.to and (args.project or args.every is not None or args.axis):
    raise ValueError('--project, --every and --axis are for --to; add it.')
  if args.to and (args.web or args.png or args.stacks is not None):
    raise ValueError(
      f'--to={args.to} is a command of its own; leave --web, --png and --stacks out.'
    )
  if args.every is not None and not 0 <= args.every < math.inf:
    raise ValueError(f'--every={args.every} must be a finite number from 0 on.')
  return args


def _draw(run_dirs: Sequence[str], path: str) -> None:
  try:
    curves.draw_all(run_dirs, path)
  except OSError as error:
    raise ValueError(f'--png={path} cannot be written: {error.strerror}.') from error


def _print_stacks(run_dirs: Sequence[str], node: str) -> None:
  for run_dir in run_dirs:
    for name, text in stacks.collect(run_dir, node):
      print(f'--- {name}\n{text or "(no answer: the process is stopped, or has ended)"}')


def _serve(args: argparse.Namespace) -> None:
  from viewing.web import server

  if args.listener is None:
    listener = server.unix_socket(args.socket) if args.socket else server.tcp_socket(args.port)
    server.serve(_runs(args.run_dir), listener, lambda line: print(line, flush=True))
    return
  token = sys.stdin.readline().strip()
  threading.Thread(target=_exit_with_launcher, daemon=True).start()
  server.serve(args.run_dir, socket.socket(fileno=args.listener), lambda line: None, token)


def _runs(paths: Sequence[str]) -> list[str]:
  """Returns the runs in directories of runs and sweeps, at least one."""
  found = sweep_directory.expanded(paths)
  if not found:
    raise ValueError(f'{paths[0]} has no runs yet; wait until the first has begun.')
  return found


def _exit_with_launcher() -> None:
  sys.stdin.read()  # Until launch.py has closed its end, or died.
  os._exit(0)


def _export(args: argparse.Namespace) -> int:
  def is_running() -> bool:
    return any(map(sweep_directory.is_running, args.run_dir))

  def begun() -> list[str]:
    return sweep_directory.expanded(args.run_dir)

  for run_dir in begun() if is_running() else _runs(args.run_dir):
    run_directory.read_record(run_dir)
  options = [f'--period={args.period}']
  for name in ('project', 'every', 'axis'):
    if getattr(args, name) is not None:
      options.append(f'--{name}={getattr(args, name)}')
  return environment.export(args.to, begun, is_running, options, args.period)


def main(argv: Sequence[str]) -> int:
  """Runs the command; returns the exit code."""
  try:
    args = _parse(argv)
    if args.stacks is not None:
      _print_stacks(_runs(args.run_dir), args.stacks)
      return 0
    if args.web:
      _serve(args)
      return 0
    if args.to:
      return _export(args)
    if args.png:
      _draw(_runs(args.run_dir), args.png)
    else:
      _follow(_Watched(args.run_dir), args.period)
  except BrokenPipeError:
    raise
  except (ValueError, OSError) as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  return 0


if __name__ == '__main__':
  sys.exit(output.run(lambda: main(sys.argv[1:])))
