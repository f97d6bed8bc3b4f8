"""Reads the user's changes to a program's placement from a small YAML or JSON file.

inference_learner:
  accelerator: tpu
  num_devices: 4
actor:
  cpus: 2
  labels: {pool: cpu-workers}
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from launchers.placement import Resources


def override(placement: Mapping[str, Resources], path: str) -> dict[str, Resources]:
  """Returns a placement with the fields in a file replaced.

  Args:
    placement: resources of every group of the program.
    path: path of a file that maps groups to mappings from fields of `Resources` to values.

  Raises:
    ValueError: if the file cannot be read, or has an unknown group or field or an invalid value; one
      sentence that locates the error.
  """
  flag = f'--placement={path}'
  try:
    with open(path) as f:
      changes = yaml.safe_load(f)
  except OSError as error:
    raise ValueError(f'{flag} cannot be read: {error.strerror}.') from error
  except RecursionError as error:
    raise ValueError(f'{flag} is nested too deeply; write fewer levels.') from error
  except (yaml.YAMLError, ValueError) as error:
    text = ' '.join(str(error).split())
    raise ValueError(f'{flag} is neither YAML nor JSON: {text}.') from error
  if not isinstance(changes, dict):
    raise ValueError(f'{flag} must map groups to fields, as in "actor: {{cpus: 2}}".')
  result = dict(placement)
  for group, fields in changes.items():
    if group not in placement:
      raise ValueError(f'{flag}: there is no group {group!r}; there are: {", ".join(placement)}.')
    if not isinstance(fields, dict):
      raise ValueError(f'{flag}: group {group!r} must map fields to values, as in {{cpus: 2}}.')
    try:
      values = {name: _value(name, value) for name, value in fields.items()}
      # A change to the devices replaces all of the program's device fields.
      if values.get('accelerator', '') is None or {'devices', 'num_devices'} & values.keys():
        values = {'topology': '', 'devices': (), 'num_devices': 0} | values
      result[group] = dataclasses.replace(placement[group], **values)
    except ValueError as error:
      raise ValueError(f'{flag}: group {group!r}: {error}') from error
  return result


def _value(name: str, value: Any) -> Any:
  """Returns the value of a field of `Resources`, or raises a ValueError that states the valid type."""
  if name not in _FIELDS:
    raise ValueError(f'there is no field {name!r}; there are: {", ".join(_FIELDS)}.')
  wanted, parse = _FIELDS[name]
  try:
    return parse(value)
  except TypeError:
    raise ValueError(f'{name} must be {wanted}, not {value!r}.') from None


def _typed(*types: type) -> Callable[[Any], Any]:
  def parse(value: Any) -> Any:
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
      raise TypeError
    return value

  return parse


def _accelerator(value: Any) -> str | None:
  return None if value in (None, 'cpu') else _typed(str)(value)


def _python(value: Any) -> str:
  return os.path.expanduser(_typed(str)(value))


def _devices(value: Any) -> tuple[int, ...]:
  return tuple(map(_typed(int), _typed(list)(value)))


def _numbers(value: Any) -> dict[str, float]:
  number = _typed(int, float)
  return {_typed(str)(k): number(v) for k, v in _typed(dict)(value).items()}


def _texts(value: Any) -> dict[str, str]:
  text = _typed(str, int, float)
  return {_typed(str)(k): str(text(v)) for k, v in _typed(dict)(value).items()}


# For each field, a description of its values and a parser that raises TypeError.
_FIELDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
  'cpus': ('a number', _typed(int, float)),
  'memory_gb': ('a number', _typed(int, float)),
  'accelerator': ('cpu, gpu, tpu or a type of TPU', _accelerator),
  'topology': ('a text such as 2x4', _typed(str)),
  'num_devices': ('a whole number', _typed(int)),
  'devices': ('a list of whole numbers', _devices),
  'resources': ('a mapping from names to numbers', _numbers),
  'labels': ('a mapping from names to texts', _texts),
  'provisioning': ('on_demand, spot or flex_start', _typed(str)),
  'priority_class': ('a name', _typed(str)),
  'with_launcher': ('true or false', _typed(bool)),
  'uses_run_dir': ('true or false', _typed(bool)),
  'env': ('a mapping from names to texts', _texts),
  'cpu_env': ('a mapping from names to texts', _texts),
  'restart': ('never or on_failure', _typed(str)),
  'max_restarts': ('a whole number', _typed(int)),
  'restart_backoff': ('a number of seconds', _typed(int, float)),
  'one_job': ('true or false', _typed(bool)),
  'python': ('the absolute path of an interpreter', _python),
}
