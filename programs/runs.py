"""From flags, and perhaps the directory of an earlier run, to what is to be launched."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from absl import flags

from launchers import run_directory
from nodes import checkpoints
from programs import registry
from programs.config import RunConfig

# Options of every program that a resumed run cannot change, beside those of the agent.
_FIXED = {
  'env',
  'env_options',
  'run_dir',
  'num_replicas',
  'num_replay_shards',
  'batch_size',
  'seed',
}
# Options of a single program that it can.
_FREE = {'num_devices', 'replay_checkpoint_period'}
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
  for program in registry.PROGRAMS:
    for field in dataclasses.fields(registry.load(program).Config):
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
  only = '' if len(shown) == len(registry.PROGRAMS) else f'; {", ".join(shown)} only'
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
  config = _resolve(module, values)
  _check(module, config)
  return config


def _check(module: Any, config: Any) -> None:
  config.validate()
  module.environments.check(config.env, config.env_options)


def _resolve(module: Any, values: dict[str, Any]) -> Any:
  """As `make_config`, but whether the values fit together is still to be checked."""
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
  preset = module.PRESETS.get(env.partition(':')[0], {})
  return module.Config(**{**preset, **values}).resolve()


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


def check_changes(recorded: dict[str, Any], config: Any, names: Iterable[str]) -> None:
  """Checks that options of an earlier run may change when it is resumed.

  How it is run may, what it learns and from what may not. To give the same value again is no change.

  Args:
    recorded: name to value, as it was; lists for tuples.
    config: every option, as it is to be.
    names: of the options that were given anew.

  Raises:
    ValueError: one sentence that names the first flag that may not.
  """
  may_change = {f.name for f in dataclasses.fields(RunConfig)} - _FIXED | _FREE
  for name in sorted(set(names) - may_change):
    value, before = getattr(config, name), recorded.get(name)
    if value != (tuple(before) if isinstance(before, list) else before):
      text = ','.join(map(str, value)) if isinstance(value, tuple) else value
      raise ValueError(
        f'--{name}={text} cannot change when a run is resumed, where it was {before!r}; '
        'leave it out, or start a new run.'
      )


def _given_flags() -> dict[str, Any]:
  """Returns the config flags that the user set."""
  names = {
    field.name
    for program in registry.PROGRAMS
    for field in dataclasses.fields(registry.load(program).Config)
  }
  return {n: flags.FLAGS[n].value for n in names if flags.FLAGS[n].value is not None}


def new_run(program: str) -> Run:
  """Returns what the flags say to run; its directory is not made yet.

  Raises:
    ValueError: if the flags do not fit together; one sentence.
  """
  module, given = registry.load(program), _given_flags()
  return Run(program, module, given, make_config(module, given))


def resumed_run(path: str, program: str) -> Run:
  """Returns an earlier run, with what the flags change of it.

  Args:
    path: its directory, which this process takes.
    program: what the user says that it is; '' if he says nothing.

  Raises:
    ValueError: if it cannot be resumed, or not so; one sentence.
  """
  path, record = run_directory.reopen(path)
  if program not in ('', record.program):
    raise ValueError(
      f'--resume={path} is a run of --program={record.program}; leave --program out.'
    )
  module, changes = registry.load(record.program), _given_flags()
  given = record.given | changes
  config = _resolve(module, given)
  # The record has the seed of the last resumption.
  began = {'seed': _resolve(module, dict(record.given)).seed, 'run_dir': path}
  if run_directory.absolute(config.run_dir) == path:
    began['run_dir'] = config.run_dir
  check_changes(record.config | began, config, changes)
  _check(module, config)
  checkpoint = checkpoints.newest(checkpoints.directory(path))
  if checkpoint is None:
    raise ValueError(
      f'--resume={path} has no checkpoint yet; start the run anew, in another --run_dir '
      'or with this one removed.'
    )
  if checkpoint.counts['actor_steps'] >= config.num_steps:
    raise ValueError(
      f'--resume={path} has done its {config.num_steps} actor_steps; raise --num_steps to go on.'
    )
  # The actors are not to play the episodes of the beginning again.
  seed = config.seed + _RESUME_STRIDE * len(record.commands)
  return Run(record.program, module, given, dataclasses.replace(config, run_dir=path, seed=seed))
