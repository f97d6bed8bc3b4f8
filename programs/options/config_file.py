"""--config=FILE: flags from a YAML or JSON file, or those of an earlier run from its config.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml
from absl import flags

from agents import options
from programs.options import flags as config_flags
from programs.options import suggestions
from rundir import option_names

_CONFIG = flags.DEFINE_string(
  'config',
  '',
  'YAML or JSON file with flags, {num_steps: 1000}, or config.json of a run, whose flags are repeated; '
  'flags on the command line win',
)
# Options as they were resolved, because their paths were relative to another directory.
_WITH_PATHS = {'agent', 'env', 'torso', 'offline_data', 'init_from'}
# What a run does not repeat: it has a directory of its own.
_OWN = 'run_dir'


def value_of(path: str, flag: str) -> str:
  """Returns the value that a file gives a flag; '' if it has none. Raises as `words` does."""
  return str(_read(path).get(flag, '')) if path else ''


def words(path: str) -> list[str]:
  """Returns the flags in a file as words of a command line; all flags have to be defined.

  Raises:
    ValueError: if the file cannot be read, or has an unknown flag or an invalid value; one sentence.
  """
  return [word(f'--config={path}', name, value) for name, value in _read(path).items()]


def warnings(config: Any, given: Mapping[str, Any]) -> list[str]:
  """Returns a warning if the flags of an earlier run no longer amount to its options.

  Args:
    config: every option, as resolved by this version on this machine.
    given: the options that the user set, those of the file included.
  """
  if not _CONFIG.value:
    return []
  record = load(_CONFIG.value, f'--config={_CONFIG.value}')
  repeated = {name: value for name, value in _read(_CONFIG.value).items() if name != 'program'}
  if not _is_record(record) or repeated != {n: v for n, v in given.items() if n != _OWN}:
    return []
  changes = []
  for name, value in options.flatten(config).items():
    before = record['config'].get(name, value)
    before = tuple(before) if isinstance(before, list) else before
    if before != value and name not in (_OWN, 'cpu_cores', 'resumes'):
      changes.append(f'--{name}={text(value)} (was {text(before)})')
  if not changes:
    return []
  return [
    f'--config={_CONFIG.value}: its flags mean {", ".join(changes)} in this version or on this machine; '
    'give the option to repeat the run.'
  ]


def _read(path: str) -> dict[str, Any]:
  """Returns the flags in a file, by name."""
  found = load(path, f'--config={path}')
  if not _is_record(found):
    return found
  config = found['config']
  given = {
    name: config.get(name, value) if name in _WITH_PATHS else value
    for name, value in found['given'].items()
    if name != _OWN
  }
  return {'program': found['program'], **given}


def load(path: str, source: str) -> dict[str, Any]:
  """Returns the mapping in a YAML or JSON file; a run's record has the option names of this version.

  Args:
    path: of the file.
    source: what names the file, such as '--config=mine.yaml'; begins the error message.

  Raises:
    ValueError: if the file cannot be read, or holds something else; one sentence.
  """
  try:
    with open(path) as f:
      found = json.load(f) if path.endswith('.json') else yaml.safe_load(f)
  except OSError as error:
    raise ValueError(f'{source} cannot be read: {error.strerror}.') from error
  except RecursionError as error:
    raise ValueError(f'{source} is nested too deeply; write fewer levels.') from error
  except (ValueError, yaml.YAMLError) as error:
    said = ' '.join(str(error).split())
    raise ValueError(f'{source} is neither YAML nor JSON: {said}.') from error
  if not isinstance(found, dict):
    raise ValueError(f'{source} must map names to values, as in "num_steps: 1000".')
  if _is_record(found):
    parts = {part: option_names.current(found[part]) for part in ('given', 'config')}
    found = found | parts
  return {str(name): value for name, value in found.items()}


def _is_record(found: Mapping[str, Any]) -> bool:
  """Returns whether a file is the record of a run: see `run_directory.Record`."""
  parts = {'program': str, 'given': dict, 'config': dict}
  return all(isinstance(found.get(name), kind) for name, kind in parts.items())


def word(source: str, name: str, value: Any) -> str:
  """Returns a flag with its value, as a word of a command line; all flags have to be defined.

  Args:
    source: where the flag stands, such as '--config=mine.yaml'; begins the error message.
    name: of the flag.
    value: as YAML or JSON has it.

  Raises:
    ValueError: if there is no such flag, or the value is invalid; one sentence.
  """
  if name not in flags.FLAGS or name == _CONFIG.name:
    if name != _CONFIG.name and config_flags.has_elsewhere(name):
      raise ValueError(f'{source}: {config_flags.unknown(name)}')
    near = suggestions.did_you_mean(name) if name != _CONFIG.name else ''
    raise ValueError(f'{source}: there is no option {name!r}{near or "; see --help."}')
  known = flags.FLAGS[name]
  if value is None:
    raise ValueError(f'{source}: {name} has no value; give it one, or leave it out.')
  if isinstance(value, bool) and not known.boolean:
    raise ValueError(f'{source}: {name} is {value!r}; put a text such as "no" in quotes.')
  written = text(value)
  try:
    known.parser.parse(written)
  except (ValueError, TypeError) as error:
    raise ValueError(f'{source}: {name} cannot be {written!r}: {error}.') from error
  return f'--{name}={written}'


def text(value: Any) -> str:
  """Returns a value as its flag takes it."""
  if isinstance(value, dict):
    return ','.join(f'{key}={text(part)}' for key, part in value.items())
  if isinstance(value, list | tuple):
    return ','.join(map(text, value))
  return str(value).lower() if isinstance(value, bool) else str(value)
