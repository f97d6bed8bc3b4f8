"""Launches a program: makes a plan, and previews or starts it.

python launch.py                                   trains Sebulba on Catch
python launch.py --env=atari:Pong --num_steps=1000000
python launch.py --presets --program=r2d2          prints what each preset sets
python launch.py --dry_run                         prints the graph and starts nothing
python launch.py --dry_run --graph=graph.svg       also draws the graph
python launch.py --program=path/to/mine.py:make_program    a program of your own, of any Launchpad nodes
python launch.py --agent=path/to/mine.py:MyAgent           an agent of your own
python launch.py --config=FILE                     takes flags from a file, such as a run's config.json
python launch.py --resume=runs/...                 resumes that run from its newest checkpoint
python launch.py --seeds=5                         the program once per seed, and a table
python launch.py --launcher=ray                    runs on the Ray cluster of this machine
python launch.py --launcher=slurm                  runs as a Slurm job
python launch.py --launcher=k8s --image=... --output=DIR   writes Kubernetes manifests
python launch.py --launcher=skypilot --image=... --output=run.sky.yaml   writes a job group for SkyPilot
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

from launchers import descriptors, early_nodes

if __name__ == '__main__':
  descriptors.open_standard()
  early_nodes.begin(sys.argv)

from absl import app, flags

from launchers import engine_flags, guard, placement, run, stop_requests, streams
from launchers.graph import picture
from programs import listings, plan
from programs.options import early, help_page
from programs.options import flags as config_flags
from rundir import files

_DRY_RUN = flags.DEFINE_bool('dry_run', False, 'print the graph and its placement; start nothing')
_GRAPH = flags.DEFINE_string(
  'graph', '', 'also write a picture of the graph to this file: .svg, or Mermaid text (.mmd or .md)'
)


def main(argv: list[str]) -> int:
  """Runs the command that the flags describe; returns the exit code."""
  os.environ.update(placement.NO_PROXY)
  try:
    with stop_requests.raised():
      return _run(argv)
  except ValueError as error:
    streams.say(f'error: {error}', sys.stderr)
    return 2
  except stop_requests.StopRequested as stop:
    return stop.exit_code


def _run(argv: list[str]) -> int:
  try:
    with files.reported('standard output'):
      listing = listings.asked_for()
      if listing is not None:
        print(listing)
        return 0
      engine = engine_flags.chosen()
      engine.begin()
      if argv[1:]:
        raise ValueError(f'{argv[1]!r} is not a flag; options look like --num_steps=1000.')
      if plan.SEEDS.value:
        from sweeps import seeds  # Other runs need no sweeps.

        return seeds.run()
      if _GRAPH.value:
        picture.check_path(_GRAPH.value)
      with guard.swept():  # The user's files, which planning runs, may leave processes.
        job = plan.plan(engine, _DRY_RUN.value, _GRAPH.value)
      if _GRAPH.value:
        picture.write(_GRAPH.value, job.program, job.placement)
      if _DRY_RUN.value:
        run.warn(job)
        print(engine.preview(job))
        return 0
  except BrokenPipeError:  # The reader of the output, such as head, has left.
    return 128 + signal.SIGPIPE
  return engine.start(job)


if __name__ == '__main__':
  streams.ensure_streams()
  try:
    words = early.with_flagfiles(sys.argv)
    defined = config_flags.define(*early.choice_or_all(words))
    if early.has(words, 'help'):
      shown = help_page.page(defined, engine_flags.module(early.last(words, 'launcher')))
      with contextlib.suppress(BrokenPipeError):  # The reader, such as head, has left.
        print(shown)
      sys.exit(0)
    command = early.expanded(words)
  except ValueError as error:
    print(f'error: {error}', file=sys.stderr)
    sys.exit(2)

  def _exit_with(argv: list[str]) -> None:
    code = main(argv)
    streams.flush()
    # Under the multi-threaded launch types, node threads may still be inside calls that never return.
    os._exit(code)

  app.run(_exit_with, command, flags_parser=config_flags.parse_or_exit)
