"""Launches a program: plans it, previews or launches it, and concludes.

python launch.py                                   trains Sebulba on Catch
python launch.py --env=atari:Pong --num_steps=1000000
python launch.py --presets --program=r2d2          prints what each preset sets
python launch.py --dry_run                         prints the graph and starts nothing
python launch.py --dry_run --graph=graph.svg       also draws the graph
python launch.py --program=path/to/mine.py:make_program    a program of your own
python launch.py --resume=runs/...                 resumes that run from its newest checkpoint
python launch.py --launcher=ray                    runs on the Ray cluster of this machine
python launch.py --launcher=slurm                  runs as a Slurm job
python launch.py --launcher=k8s --image=... --output=DIR   writes Kubernetes manifests
"""

from __future__ import annotations

import os
import sys

from absl import app, flags

from launchers import engines, guard, placement, streams, terminal
from launchers.graph import picture
from programs import plan, preset_list, registry
from programs.options import early
from programs.options import flags as config_flags

_DRY_RUN = flags.DEFINE_bool('dry_run', False, 'print the graph and its placement; start nothing')
_GRAPH = flags.DEFINE_string(
  'graph', '', 'also write a picture of the graph to this file: .svg, or Mermaid text (.mmd or .md)'
)
_LIST_ENVS = flags.DEFINE_bool('list_envs', False, "print the program's environments")
_PRESETS = flags.DEFINE_bool(
  'presets', False, 'print what each preset sets; of --program, --env and --preset, if given'
)


def _list_environments() -> int:
  for family, text in registry.load(plan.PROGRAM.value).environments.families().items():
    print(f'{family:12} {text}')
  print('or your own, --env=path/to/mine.py:make; see docs/extending.md')
  return 0


def main(argv: list[str]) -> int:
  """Runs the command that the flags describe; returns the exit code."""
  os.environ.update(placement.NO_PROXY)
  try:
    if _LIST_ENVS.value:
      return _list_environments()
    if _PRESETS.value:
      program = plan.PROGRAM.value if plan.PROGRAM.present else ''
      print(preset_list.listing(program, config_flags.given()))
      return 0
    launcher = engines.chosen()
    launcher.begin()
    if argv[1:]:
      raise ValueError(f'{argv[1]!r} is no flag; options look like --num_steps=1000.')
    if _GRAPH.value:
      picture.check_path(_GRAPH.value)
    with guard.swept():  # Planning runs the user's environment, which may leave processes.
      job = plan.plan(launcher, _DRY_RUN.value, _GRAPH.value)
    if not _DRY_RUN.value:
      launcher.claim(job)
    for sentence in launcher.warnings(job):
      streams.say(f'warning: {sentence}', sys.stderr)
    if _GRAPH.value:
      picture.write(_GRAPH.value, job.program, job.placement)
    if _DRY_RUN.value:
      print(launcher.preview(job))
      return 0
    launcher.record(job)
  except ValueError as error:
    streams.say(f'error: {error}', sys.stderr)
    return 2
  except OSError as error:
    streams.say(f'error: {error.filename} cannot be written: {error.strerror}.', sys.stderr)
    return 2
  try:
    with terminal.shown(job.program, job.title, job.run_dir) as callbacks:
      code = launcher.launch(job, callbacks)
  except ValueError as error:
    streams.say(f'error: {error}', sys.stderr)
    return 2
  launcher.conclude(job, code)
  return code


if __name__ == '__main__':
  streams.ensure_streams()
  try:
    config_flags.define(early.own_program(sys.argv))
  except ValueError as error:
    print(f'error: {error}', file=sys.stderr)
    sys.exit(2)
  for module in (config_flags, plan, engines):  # So that --help lists their flags.
    flags.adopt_module_key_flags(module)

  def _run(argv: list[str]) -> None:
    code = main(argv)
    streams.flush()
    # Under the multi-threaded launch types, node threads may still be inside calls that never return.
    os._exit(code)

  app.run(_run)
