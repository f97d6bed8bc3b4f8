"""A user's own Launchpad program: a function without a config, whose parameters become flags."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import launchpad as lp

from agents import options
from environments import user_file
from launchers.options import DEFINE
from launchers.placement import Resources
from programs.options.common import CommonConfig
from programs.user_graph import UserGraph

# The type of a parameter is that of its default; without one, its annotation may name one of these.
_SCALARS = {kind.__name__: kind for kind in (bool, int, float, str)}
_TYPE_NAMES = 'bool, int, float, str or a tuple of ints'
_RUN_DIR = 'run_dir'
_UNNAMED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def takes_config(function: Callable[..., Any]) -> bool:
  """Returns whether a function is make_program(config), which gets the options of a learning program.

  That is so if its first parameter is the only one without a default, and is not annotated with a type
  that a flag can have.
  """
  try:
    parameters = _parameters(function)
  except (ValueError, TypeError):  # A callable without a signature.
    return True
  required = [p for p in parameters if p.default is p.empty]
  if len(required) != 1 or required[0] is not parameters[0]:
    return False
  if required[0].kind is inspect.Parameter.KEYWORD_ONLY:
    return False
  name = _annotated(required[0])
  return name.partition('[')[0].lower() not in {kind.__name__ for kind in DEFINE}


def _annotated(parameter: inspect.Parameter) -> str:
  """Returns the name of a parameter's annotation; '' without one."""
  annotation = parameter.annotation
  return annotation if isinstance(annotation, str) else getattr(annotation, '__name__', '')


def _required(parameter: inspect.Parameter) -> type | None:
  """Returns the type of a parameter whose flag has to be given; None for any other parameter."""
  return _SCALARS.get(_annotated(parameter)) if parameter.default is parameter.empty else None


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
  """Returns the parameters of a function that have a name, without *args and **kwargs."""
  found = inspect.signature(function).parameters.values()
  return [p for p in found if p.kind not in _UNNAMED]


class LaunchpadProgram(UserGraph):
  """A function that builds a Launchpad program from keyword arguments.

  Attributes:
    Config: a frozen dataclass with a field for each of its parameters, and `run_dir`.
    PRESETS: empty.
    CYCLES: None: its nodes may call each other in any way, as under Launchpad's own launchers.
  """

  PRESETS: Mapping[str, Any] = {}
  CYCLES = None

  def __init__(self, name: user_file.Named):
    """Imports the file.

    Raises:
      ValueError: one sentence, if the import fails, a parameter cannot become a flag, or the file has
        options of learning.
    """
    super().__init__(name)
    config = getattr(self._module, 'Config', None)
    if isinstance(config, type) and issubclass(config, CommonConfig):
      raise ValueError(
        f'{name} takes no config, but its file defines Config; give it the parameter config, without a '
        'default, or remove Config.'
      )
    self._parameters = _parameters(self._function)
    for parameter in self._parameters:
      _check(name, parameter)
    self.Config = dataclasses.make_dataclass('Options', self._fields(name.name), frozen=True)

  def _fields(self, function: str) -> Iterator[tuple[str, type, Any]]:
    for parameter in self._parameters:
      if parameter.name != _RUN_DIR:
        text = f'the parameter {parameter.name} of {function}'
        default, kind = parameter.default, _required(parameter)
        if kind is not None:
          text, default = f'{text}, which has no default and must be given', kind()
        field = dataclasses.field(default=default, metadata={'help': text})
        yield parameter.name, type(default), field
    text = 'directory of this run; empty: runs/<program>-<time>'
    yield _RUN_DIR, str, dataclasses.field(default='', metadata={'help': text})

  def make_config(self, given: Mapping[str, Any]) -> Any:
    """Returns the options of a run.

    Args:
      given: flag name to value; lists hold strings.

    Raises:
      ValueError: one sentence, if the entries of a list are not whole numbers, or a parameter without a
        default is not given.
    """
    values = dict(given)
    for parameter in self._parameters:
      kind = _required(parameter)
      if kind is not None and parameter.name not in values:
        raise ValueError(
          f'--{parameter.name} is missing: that parameter of {self._function.__name__} has no default; '
          f'add --{parameter.name} with a value of type {kind.__name__}.'
        )
    for name, default in options.flatten(self.Config()).items():
      if name in values and isinstance(default, tuple):
        try:
          values[name] = tuple(int(entry) for entry in values[name])
        except ValueError:
          text = ','.join(map(str, values[name]))
          raise ValueError(f'--{name}={text} must be whole numbers: 0,1,2.') from None
    return self.Config(**values)

  def make_program(self, config: Any) -> lp.Program:
    """Returns the program graph.

    Raises:
      ValueError: one sentence, if the user's function raises or does not return an `lp.Program`.
    """
    values = {p.name: getattr(config, p.name) for p in self._parameters}
    positional = [values.pop(p.name) for p in self._parameters if p.kind is p.POSITIONAL_ONLY]
    return self._built(*positional, **values)

  def placement(self, config: Any) -> dict[str, Resources]:
    """Returns the resources of each group: those of the file, and a CPU worker for every other group.

    Raises:
      ValueError: one sentence, if the user's function raises.
    """
    placed = {label: Resources() for label in self.make_program(config).groups}
    return placed | (self._placed(config) or {})


def _check(name: user_file.Named, parameter: inspect.Parameter) -> None:
  """Raises ValueError, one sentence, for a parameter that cannot become a flag."""
  what = f'{name}: the parameter {parameter.name}'
  if _required(parameter) is not None:
    return
  if parameter.default is parameter.empty:
    raise ValueError(
      f'{what} has no default; give it one of type {_TYPE_NAMES}, and it becomes the flag '
      f'--{parameter.name}.'
    )
  kind = type(parameter.default)
  whole = kind is not tuple or all(type(entry) is int for entry in parameter.default)
  if kind not in DEFINE or not whole:
    raise ValueError(
      f'{what} has the default {parameter.default!r}, which no flag can have; give it one of type '
      f'{_TYPE_NAMES}, or wrap the function in one without this parameter.'
    )
  if parameter.name == _RUN_DIR and kind is not str:
    raise ValueError(f"{what} gets the run directory, a str; give it the default ''.")
