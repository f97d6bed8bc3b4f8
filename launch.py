"""Launches a program: flags -> config -> graph -> launcher.

python launch.py                                   trains Sebulba on Catch
python launch.py --env=atari:Pong --num_steps=1000000
python launch.py --dry_run                         prints the graph and starts nothing
python launch.py --dry_run --graph=graph.svg       and draws it
python launch.py --program=path/to/mine.py:make_program    a program of your own
python launch.py --resume=runs/...                 goes on where that run was interrupted
python launch.py --launcher=ray                    on the Ray cluster that this machine is part of
python launch.py --launcher=slurm                  as a Slurm job
python launch.py --launcher=k8s --image=... --output=DIR   writes what runs it on Kubernetes
"""

from __future__ import annotations

import dataclasses
import math
import os
import shlex
import sys
from collections.abc import Iterable
from typing import Any

import launchpad as lp
from absl import app, flags

from environments import own_file
from launchers import (
  describe,
  graph_picture,
  isolation,
  k8s,
  local,
  placement,
  placement_file,
  pod,
  slurm,
  stock,
  supervise,
  terminal,
)
from launchers.placement import Resources
from programs import arithmetic, check, resumed, runs
from programs import registry as programs
from programs.options import early
from programs.options import flags as config_flags
from rundir import checkpoints, run_directory

_PROGRAM = flags.DEFINE_string(
  'program',
  'sebulba',
  f'what to launch: {", ".join(programs.PROGRAMS)}, or your own, path/to/mine.py:make_program',
)
_DRY_RUN = flags.DEFINE_bool('dry_run', False, 'print the graph and its placement, start nothing')
_GRAPH = flags.DEFINE_string(
  'graph', '', 'also draw the graph into this file: a picture, .svg, or Mermaid text, .mmd or .md'
)
_LAUNCHER = flags.DEFINE_enum(
  'launcher',
  'local',
  ['local', 'ray', 'slurm', 'k8s', 'pod'],
  'where it runs: on this machine; on a Ray cluster; as a Slurm job; on Kubernetes, for which files '
  'are written; in this pod, as those files say',
)
_PLACEMENT = flags.DEFINE_string(
  'placement', '', 'YAML or JSON file, {group: {field: value}}, that changes where groups run'
)
_RAY_ADDRESS = flags.DEFINE_string(
  'ray_address', 'auto', "host:port of the Ray cluster's head; auto: the one of this machine"
)
_RAY_TIMEOUT = flags.DEFINE_float(
  'ray_timeout', 60.0, 'seconds that Ray has to find a machine for every node', lower_bound=0.0
)
_RESUME = flags.DEFINE_string(
  'resume', '', 'directory of a run to go on with, from its newest checkpoint'
)
_NODE_TIMEOUT = flags.DEFINE_float(
  'node_timeout',
  300.0,
  'seconds without a heartbeat, or without progress, after which a node is killed',
  lower_bound=1.0,
)
_ISOLATE = flags.DEFINE_enum(
  'isolate',
  'auto',
  isolation.MODES,
  'whether a local run gets a network of its own, where nobody else reaches its nodes and they reach '
  'nobody else: where the system allows it and no TPU is used; always, or refuse to run; never',
)
_LIST_ENVS = flags.DEFINE_bool('list_envs', False, "print the program's environments")
flags.FLAGS.set_default('lp_launch_type', 'local_mp')


def _placement(default: dict[str, Resources]) -> dict[str, Resources]:
  """Returns where the groups run, as the flags change it; raises ValueError if they cannot."""
  if _LAUNCHER.value != 'local' and flags.FLAGS['lp_launch_type'].present:
    raise ValueError(
      f'--lp_launch_type is for --launcher=local; leave it out with --launcher={_LAUNCHER.value}.'
    )
  if _LAUNCHER.value != 'local' and _ISOLATE.value == 'require':
    raise ValueError(
      f'--isolate=require is for --launcher=local; leave it out with --launcher={_LAUNCHER.value}, '
      'and see SECURITY.md.'
    )
  where = placement_file.override(default, _PLACEMENT.value) if _PLACEMENT.value else default
  if _LAUNCHER.value == 'ray':
    from launchers import ray_options

    ray_options.check(where)
  elif _LAUNCHER.value == 'slurm':
    slurm.check(where, _DRY_RUN.value)
  elif _LAUNCHER.value == 'local':
    placement.check_one_machine(where, lp.LAUNCH_TYPE.value in ('local_mt', 'test_mt'))
  return where


def _write_manifests(run: runs.Run, where: dict[str, Resources]) -> None:
  """Writes the files that run the program on Kubernetes; raises ValueError if they cannot be."""
  if run.config.run_dir:
    raise ValueError('--run_dir is chosen for --launcher=k8s; leave it out, and see --k8s_volume.')
  name = k8s.jobset_name(own_file.title(run.program), own_file.title(run.config.env))
  config = dataclasses.replace(run.config, run_dir=k8s.run_dir(name))
  program = run.module.make_program(config)
  if _GRAPH.value:
    graph_picture.write(_GRAPH.value, program, where)
  arguments = [f'--program={_in_image("program", run.program)}']
  arguments += [flags.FLAGS[n].serialize() for n in sorted(run.given.keys() - {'env'})]
  arguments += [f'--env={_in_image("env", run.given["env"])}'] if 'env' in run.given else []
  used = _in_image('program', run.program), _in_image('env', run.config.env)
  own = sorted({os.path.dirname(n) for n in used if own_file.is_spec(n)})
  print(k8s.generate(program, where, name, arguments, _DRY_RUN.value, own))


def _in_image(flag: str, name: str) -> str:
  """Returns the name of a program or environment in a container; ValueError if it is not there."""
  try:
    return own_file.in_checkout(name)
  except ValueError as error:
    raise ValueError(f'--{flag}={error}') from error


def _launch(
  program: lp.Program,
  where: dict[str, Resources],
  run_dir: str,
  watch: supervise.Watch,
  owns_run_dir: bool,
) -> int:
  """Runs the graph to its end by the launcher of the flag; returns the exit code."""
  if _LAUNCHER.value == 'ray':
    from launchers import ray_cluster

    address, timeout = _RAY_ADDRESS.value, _RAY_TIMEOUT.value
    return ray_cluster.launch(program, where, run_dir, address, timeout, watch=watch)
  if _LAUNCHER.value == 'slurm':  # The job has a follower and a view of its own.
    return slurm.launch(program, where, run_dir, _NODE_TIMEOUT.value)
  if _LAUNCHER.value == 'pod':
    started = watch.started if owns_run_dir else lambda: None
    return pod.launch(
      program,
      k8s.POD_GROUP.value,
      pod.node_index(),
      k8s.POD_HOSTS.value,
      k8s.PORT.value,
      k8s.POD_ENDS_PROGRAM.value,
      started=started,
    )
  if lp.LAUNCH_TYPE.value == 'local_mp':
    return local.launch(program, where, run_dir, watch=watch)
  return stock.launch(program, lp.LAUNCH_TYPE.value, where, started=watch.started)


def _warn(sentences: Iterable[str]) -> None:
  for sentence in sentences:
    terminal.say(f'warning: {sentence}', sys.stderr)


def _title(run: runs.Run, config: Any) -> str:
  """Returns what the live view is called."""
  return f'{own_file.title(run.program)} on {own_file.title(config.env)}  {config.run_dir}'


def _resumable(run_dir: str) -> bool:
  """Whether the user may be told of --resume: a pod is replaced by Kubernetes."""
  return _LAUNCHER.value != 'pod' and os.path.isdir(checkpoints.directory(run_dir))


def main(argv: list[str]) -> int:
  """Does what the flags say; returns the exit code."""
  os.environ.update(placement.NO_PROXY)
  try:
    if _LIST_ENVS.value:
      for family, text in programs.load(_PROGRAM.value).environments.families().items():
        print(f'{family:12} {text}')
      print('or your own, --env=path/to/mine.py:make; see WORKSPACE.md')
      return 0
    if argv[1:]:
      raise ValueError(f'{argv[1]!r} is no flag; options look like --num_steps=1000.')
    for flag in (_RAY_TIMEOUT, _NODE_TIMEOUT):
      if not math.isfinite(flag.value):
        raise ValueError(f'--{flag.name}={flag.value} must be a finite number.')
    if _GRAPH.value:
      graph_picture.check_path(_GRAPH.value)
    if _RESUME.value and _LAUNCHER.value == 'k8s':
      raise ValueError(
        '--resume is not for --launcher=k8s; apply the manifests again, and see --k8s_volume.'
      )
    if _RESUME.value:
      run = resumed.resumed_run(_RESUME.value, _PROGRAM.value if _PROGRAM.present else '')
    else:
      run = runs.new_run(_PROGRAM.value)
    config = run.config
    where = _placement(run.module.placement(config))
    pickled = _LAUNCHER.value != 'local' or lp.LAUNCH_TYPE.value not in ('local_mt', 'test_mt')
    check.check(
      run.module.make_program(config), where, getattr(run.module, 'CYCLES', ()), pickled=pickled
    )
    if _LAUNCHER.value == 'slurm':  # What it cannot be asked for is refused before all else.
      path = run_directory.absolute(config.run_dir or '.')
      slurm.script(run.module.make_program(config), where, path)
    if _LAUNCHER.value == 'k8s':
      _write_manifests(run, where)
      _warn(arithmetic.warnings(config))
      return 0
    if _LAUNCHER.value == 'local' and not _DRY_RUN.value:
      isolation.enter(_ISOLATE.value, where)
    owns_run_dir = not _DRY_RUN.value and (_LAUNCHER.value != 'pod' or k8s.POD_ENDS_PROGRAM.value)
    if owns_run_dir and not _RESUME.value:
      path = config.run_dir or run_directory.default_path(
        own_file.title(run.program), own_file.title(config.env)
      )
      # A pod that is replaced finds the directory of its earlier life.
      take = run_directory.create_or_reopen if _LAUNCHER.value == 'pod' else run_directory.create
      config = dataclasses.replace(config, run_dir=take(path))
    program = run.module.make_program(config)
    if _GRAPH.value:
      graph_picture.write(_GRAPH.value, program, where)
    if _LAUNCHER.value == 'local':
      _warn(filter(None, [placement.crowding(program, where)]))
    if _LAUNCHER.value != 'pod':  # The manifests came with them.
      _warn(arithmetic.warnings(config))
    if _DRY_RUN.value:
      print(describe.describe(program, where))
      print(f'\nlearning: {arithmetic.describe(config) or "as the program has it"}')
      print(f'\npicture: {_GRAPH.value or "with --graph=graph.svg, or .md for Mermaid"}')
      if _LAUNCHER.value == 'slurm':
        print('\n' + slurm.script(program, where, config.run_dir or 'RUN_DIR'), end='')
      return 0
    if owns_run_dir:
      news = run_directory.write_record(config.run_dir, run.program, run.given, config)
      if news:
        terminal.say(f'warning: {news}', sys.stderr)
      for name in ('graph.md', 'graph.svg'):
        graph_picture.write(os.path.join(config.run_dir, name), program, where)
  except ValueError as error:
    terminal.say(f'error: {error}', sys.stderr)
    return 2
  except OSError as error:
    terminal.say(f'error: {error.filename} cannot be written: {error.strerror}.', sys.stderr)
    return 2
  try:
    with terminal.shown(program, _title(run, config), config.run_dir, _NODE_TIMEOUT.value) as watch:
      code = _launch(program, where, config.run_dir, watch, owns_run_dir)
  except ValueError as error:
    terminal.say(f'error: {error}', sys.stderr)
    return 2
  done = run_directory.result(config.run_dir)
  if code == 0 and done and _LAUNCHER.value != 'slurm':  # The job has said it.
    terminal.say(done)
  elif code and _resumable(config.run_dir):
    elsewhere = _LAUNCHER.value in ('ray', 'slurm')
    launcher = f' --launcher={_LAUNCHER.value}' if elsewhere else ''
    resume = shlex.quote(f'--resume={config.run_dir}')
    terminal.say(f'to go on: python launch.py {resume}{launcher}', sys.stderr)
  return code


if __name__ == '__main__':
  terminal.ensure_streams()
  try:
    config_flags.define(early.own_program(sys.argv))
  except ValueError as error:
    print(f'error: {error}', file=sys.stderr)
    sys.exit(2)
  for module in (config_flags, slurm, k8s):  # --help shows them as well.
    flags.adopt_module_key_flags(module)

  def _run(argv: list[str]) -> None:
    code = main(argv)
    terminal.flush()
    # Under the multi-threaded launch types, node threads may still be inside calls that never return.
    os._exit(code)

  app.run(_run)
