"""Launches a program: flags -> config -> graph -> launcher.

python launch.py                                   trains Sebulba on Catch
python launch.py --env=atari:Pong --num_steps=1000000
python launch.py --dry_run                         prints the graph and starts nothing
python launch.py --resume=runs/...                 goes on where that run was interrupted
python launch.py --launcher=ray                    on the Ray cluster that this machine is part of
python launch.py --launcher=k8s --image=... --output=DIR   writes what runs it on Kubernetes
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from typing import Any

import launchpad as lp
from absl import app, flags

from launchers import (
  describe,
  k8s,
  local,
  placement,
  placement_file,
  pod,
  run_directory,
  stock,
  supervise,
)
from launchers.follow import Follower
from launchers.placement import Resources
from launchers.view import View
from nodes import checkpoints
from programs import registry as programs
from programs.config import RunConfig

_PROGRAM = flags.DEFINE_string(
  'program', 'sebulba', f'what to launch: {", ".join(programs.PROGRAMS)}'
)
_DRY_RUN = flags.DEFINE_bool('dry_run', False, 'print the graph and its placement, start nothing')
_LAUNCHER = flags.DEFINE_enum(
  'launcher',
  'local',
  ['local', 'ray', 'k8s', 'pod'],
  'where it runs: on this machine; on a Ray cluster; on Kubernetes, for which files are written; '
  'in this pod, as those files say',
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
  'node_timeout', 300.0, 'seconds without a word after which a node is killed', lower_bound=1.0
)
_LIST_ENVS = flags.DEFINE_bool('list_envs', False, "print the program's environments")
flags.FLAGS.set_default('lp_launch_type', 'local_mp')

# Options of every program that a resumed run cannot change, beside those of the agent.
_FIXED = {'env', 'env_options', 'run_dir', 'num_replay_shards', 'seed'}
_RESUME_STRIDE = 7_368_787


def define_config_flags() -> None:
  """Defines a flag for each field of each program's config."""
  define: dict[type, Callable[..., Any]] = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
    tuple: flags.DEFINE_list,
  }
  fields: dict[str, dict[str, dataclasses.Field]] = {}
  for program in programs.PROGRAMS:
    for field in dataclasses.fields(programs.load(program).Config):
      fields.setdefault(field.name, {})[program] = field
  for name, by_program in fields.items():
    field = next(iter(by_program.values()))
    define[type(field.default)](name, None, f'{field.metadata["help"]} ({_defaults(by_program)})')


def _defaults(by_program: dict[str, dataclasses.Field]) -> str:
  """Says what a flag's default is, and which programs have the flag if not all of them do."""
  shown = {
    program: ','.join(map(str, f.default)) if isinstance(f.default, tuple) else repr(f.default)
    for program, f in by_program.items()
  }
  if len(set(shown.values())) > 1:
    return 'default: ' + ', '.join(f'{value} for {program}' for program, value in shown.items())
  value = next(iter(shown.values()))
  only = '' if len(shown) == len(programs.PROGRAMS) else f'; {", ".join(shown)} only'
  return f'default: {value}{only}'


def make_config(module: Any, values: dict[str, Any]) -> Any:
  """Builds a program's config from the flags that were given.

  A preset for the environment's family goes below them and above the defaults.

  Args:
    module: the program's.
    values: flag name to value; lists hold strings.

  Raises:
    ValueError: if a flag is not one of the program's, or the values do not fit together.
  """
  fields = {f.name: f for f in dataclasses.fields(module.Config)}
  for name, value in values.items():
    if name not in fields:
      raise ValueError(f'--{name} is no option of this program.')
    if isinstance(fields[name].default, tuple):
      try:
        values[name] = tuple(int(v) for v in value)
      except ValueError:
        raise ValueError(f'--{name}={",".join(value)} must be whole numbers: 0,1,2.') from None
  env = values.get('env', fields['env'].default)
  config = module.Config(**{**module.PRESETS.get(env.partition(':')[0], {}), **values}).resolve()
  config.validate()
  module.environments.check(config.env, config.env_options)
  return config


@dataclasses.dataclass(frozen=True)
class Run:
  """What is to be launched.

  Attributes:
    program: its name.
    module: its module.
    given: the options that the user set.
    config: every option, checked.
  """

  program: str
  module: Any
  given: dict[str, Any]
  config: Any


def check_changes(recorded: dict[str, Any], changes: dict[str, Any]) -> None:
  """Checks that options of an earlier run may change when it is resumed.

  How it is run may, what it learns and from what may not.

  Raises:
    ValueError: one sentence that names the first flag that may not.
  """
  may_change = {f.name for f in dataclasses.fields(RunConfig)} - _FIXED
  for name, value in changes.items():
    if name not in may_change and value != recorded.get(name):
      raise ValueError(
        f'--{name}={value} cannot change when a run is resumed, where it was '
        f'{recorded.get(name)!r}; leave it out, or start a new run.'
      )


def _given_flags() -> dict[str, Any]:
  """Returns the config flags that the user set."""
  names = {
    field.name
    for program in programs.PROGRAMS
    for field in dataclasses.fields(programs.load(program).Config)
  }
  return {n: flags.FLAGS[n].value for n in names if flags.FLAGS[n].value is not None}


def _placement(default: dict[str, Resources]) -> dict[str, Resources]:
  """Returns where the groups run, as the flags change it; raises ValueError if they cannot."""
  if _LAUNCHER.value != 'local' and flags.FLAGS['lp_launch_type'].present:
    raise ValueError(
      f'--lp_launch_type is for --launcher=local; leave it out with --launcher={_LAUNCHER.value}.'
    )
  where = placement_file.override(default, _PLACEMENT.value) if _PLACEMENT.value else default
  if _LAUNCHER.value == 'ray':
    from launchers import ray_cluster

    ray_cluster.check(where)
  return where


def _new_run() -> Run:
  """Returns what the flags say to run; its directory is not made yet."""
  module, given = programs.load(_PROGRAM.value), _given_flags()
  return Run(_PROGRAM.value, module, given, make_config(module, given))


def _resumed_run() -> Run:
  """Returns an earlier run, with what the flags change of it."""
  path, record = run_directory.reopen(_RESUME.value)
  if _PROGRAM.present and _PROGRAM.value != record.program:
    raise ValueError(
      f'--resume={path} is a run of --program={record.program}; leave --program out.'
    )
  module, changes = programs.load(record.program), _given_flags()
  check_changes(record.config, changes)
  given = record.given | changes
  config = make_config(module, given)
  checkpoint = checkpoints.newest(checkpoints.directory(path))
  if checkpoint is None:
    raise ValueError(f'--resume={path} has no checkpoint yet; start the run anew.')
  if checkpoint.counts['actor_steps'] >= config.num_steps:
    raise ValueError(
      f'--resume={path} has done its {config.num_steps} actor_steps; raise --num_steps to go on.'
    )
  # The actors are not to play the episodes of the beginning again.
  seed = config.seed + _RESUME_STRIDE * len(record.commands)
  return Run(record.program, module, given, dataclasses.replace(config, run_dir=path, seed=seed))


def _write_manifests(run: Run, where: dict[str, Resources]) -> None:
  """Writes the files that run the program on Kubernetes; raises ValueError if they cannot be."""
  if run.config.run_dir:
    raise ValueError('--run_dir is chosen for --launcher=k8s; leave it out, and see --k8s_volume.')
  name = k8s.jobset_name(run.program, run.config.env)
  config = dataclasses.replace(run.config, run_dir=k8s.run_dir(name))
  program = run.module.make_program(config)
  placement.check(program, where)
  arguments = [f'--program={run.program}']
  arguments += [flags.FLAGS[n].serialize() for n in sorted(run.given)]
  text = k8s.generate(program, where, name, arguments, _DRY_RUN.value)
  if _DRY_RUN.value:
    print(describe.describe(program, where))
  print(text)


def main(argv: list[str]) -> int:
  """Does what the flags say; returns the exit code."""
  if _LIST_ENVS.value:
    for family, text in programs.load(_PROGRAM.value).environments.families().items():
      print(f'{family:12} {text}')
    return 0
  try:
    if argv[1:]:
      raise ValueError(f'{argv[1]!r} is no flag; options look like --num_steps=1000.')
    run = _resumed_run() if _RESUME.value else _new_run()
    config = run.config
    where = _placement(run.module.placement(config))
    if _LAUNCHER.value == 'k8s':
      _write_manifests(run, where)
      return 0
    owns_run_dir = not _DRY_RUN.value and (_LAUNCHER.value != 'pod' or k8s.POD_ENDS_PROGRAM.value)
    if owns_run_dir and not _RESUME.value:
      path = config.run_dir or run_directory.default_path(run.program, config.env)
      # A pod that is replaced finds the directory of its earlier life.
      take = run_directory.create_or_reopen if _LAUNCHER.value == 'pod' else run_directory.create
      config = dataclasses.replace(config, run_dir=take(path))
    program = run.module.make_program(config)
    placement.check(program, where)
    if _DRY_RUN.value:
      print(describe.describe(program, where))
      return 0
    if owns_run_dir:
      run_directory.write_record(config.run_dir, run.program, run.given, config)
  except ValueError as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  follower = Follower(program)
  view = View(follower, f'{run.program} on {config.env}  {config.run_dir}')

  def started() -> None:
    follower.start()
    view.start()

  watch = supervise.Watch(started, view.restarted, follower.silent, _NODE_TIMEOUT.value)
  try:
    if _LAUNCHER.value == 'ray':
      from launchers import ray_cluster

      code = ray_cluster.launch(
        program,
        where,
        config.run_dir,
        _RAY_ADDRESS.value,
        _RAY_TIMEOUT.value,
        watch=watch,
      )
    elif _LAUNCHER.value == 'pod':
      code = pod.launch(
        program,
        k8s.POD_GROUP.value,
        pod.node_index(),
        k8s.POD_HOSTS.value,
        k8s.PORT.value,
        k8s.POD_ENDS_PROGRAM.value,
        started=started if owns_run_dir else lambda: None,
      )
    elif lp.LAUNCH_TYPE.value == 'local_mp':
      code = local.launch(program, where, config.run_dir, watch=watch)
    else:
      code = stock.launch(program, lp.LAUNCH_TYPE.value, where, started=started)
  except ValueError as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  finally:
    view.close()
    follower.close()
  summary = run_directory.read_summary(config.run_dir)
  if code == 0 and summary is not None:
    print(
      'done: evaluator_return={evaluator_return:.4g} actor_steps={actor_steps} '
      'environment_frames={environment_frames} learner_steps={learner_steps}'.format(**summary),
      f'run_dir={config.run_dir}',
    )
  elif code and os.path.isdir(checkpoints.directory(config.run_dir)):
    print(f'to go on: python launch.py --resume={config.run_dir}', file=sys.stderr)
  return code


if __name__ == '__main__':
  define_config_flags()

  def _run(argv: list[str]) -> None:
    code = main(argv)
    sys.stdout.flush()
    sys.stderr.flush()
    # Under the multi-threaded launch types, node threads may still be inside calls that never return.
    os._exit(code)

  app.run(_run)
