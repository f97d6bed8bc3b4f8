"""Launches a program: flags -> config -> graph -> launcher.

python launch.py                                   trains Sebulba on Catch
python launch.py --env=atari:Pong --num_steps=1000000
python launch.py --dry_run                         prints the graph and starts nothing
python launch.py --launcher=ray                    on the Ray cluster that this machine is part of
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from typing import Any

import launchpad as lp
from absl import app, flags

from environments import registry as environments
from launchers import describe, local, placement, placement_file, run_directory, stock
from launchers.placement import Resources
from launchers.view import View
from programs import registry as programs

_PROGRAM = flags.DEFINE_string(
  'program', 'sebulba', f'what to launch: {", ".join(programs.PROGRAMS)}'
)
_DRY_RUN = flags.DEFINE_bool('dry_run', False, 'print the graph and its placement, start nothing')
_LAUNCHER = flags.DEFINE_enum(
  'launcher', 'local', ['local', 'ray'], 'where it runs: on this machine or on a Ray cluster'
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
_LIST_ENVS = flags.DEFINE_bool('list_envs', False, 'print the environments and their options')
flags.FLAGS.set_default('lp_launch_type', 'local_mp')


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
  environments.check(config.env, config.env_options)
  return config


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
  if _LAUNCHER.value == 'ray' and flags.FLAGS['lp_launch_type'].present:
    raise ValueError('--lp_launch_type is for --launcher=local; leave it out with --launcher=ray.')
  where = placement_file.override(default, _PLACEMENT.value) if _PLACEMENT.value else default
  if _LAUNCHER.value == 'ray':
    from launchers import ray_options

    ray_options.check(where)
  return where


def main(argv: list[str]) -> int:
  """Does what the flags say; returns the exit code."""
  if _LIST_ENVS.value:
    for family, text in environments.families().items():
      print(f'{family:12} {text}')
    return 0
  try:
    if argv[1:]:
      raise ValueError(f'{argv[1]!r} is no flag; options look like --num_steps=1000.')
    module = programs.load(_PROGRAM.value)
    config = make_config(module, _given_flags())
    where = _placement(module.placement(config))
    if not _DRY_RUN.value:
      path = config.run_dir or run_directory.default_path(_PROGRAM.value, config.env)
      config = dataclasses.replace(config, run_dir=run_directory.create(path))
    program = module.make_program(config)
    placement.check(program, where)
    if _DRY_RUN.value:
      print(describe.describe(program, where))
      return 0
    run_directory.write_config(config.run_dir, _PROGRAM.value, config)
  except ValueError as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  view = View(program, f'{_PROGRAM.value} on {config.env}  {config.run_dir}')
  try:
    if _LAUNCHER.value == 'ray':
      from launchers import ray_cluster

      code = ray_cluster.launch(
        program,
        where,
        config.run_dir,
        _RAY_ADDRESS.value,
        _RAY_TIMEOUT.value,
        started=view.start,
      )
    elif lp.LAUNCH_TYPE.value == 'local_mp':
      code = local.launch(program, where, config.run_dir, started=view.start)
    else:
      code = stock.launch(program, lp.LAUNCH_TYPE.value, where, started=view.start)
  except ValueError as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  finally:
    view.close()
  summary = run_directory.read_summary(config.run_dir)
  if code == 0 and summary is not None:
    print(
      'done: evaluator_return={evaluator_return:.4g} actor_steps={actor_steps} '
      'environment_frames={environment_frames} learner_steps={learner_steps}'.format(**summary),
      f'run_dir={config.run_dir}',
    )
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
