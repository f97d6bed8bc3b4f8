"""A program in a user's own file: --program=path/to/mine.py:make_program."""

from __future__ import annotations

import dataclasses
from typing import Any

import launchpad as lp

from environments import own_file, registry
from launchers.placement import Resources
from programs.options.common import CommonConfig
from programs.options.inference import InferenceConfig

_TYPES = (bool, int, float, str, tuple)


class OwnProgram:
  """Has what the module of a program has; what the user's file does not say is as by default.

  Attributes:
    Config: the file's, or the options that every program with actors and inference has.
    PRESETS, CYCLES, environments, make_agent: the file's, or none, and the usual environments.
  """

  def __init__(self, name: own_file.Named):
    """Imports the file.

    Raises:
      ValueError: one sentence, if it cannot be imported, or its Config has what no flag can say.
    """
    self._function, module = name.load(), name.file.load()
    self._flag, self._path = f'--program={name}', name.file.path
    self._placement = getattr(module, 'placement', None)
    self.Config = getattr(module, 'Config', InferenceConfig)
    self.PRESETS = getattr(module, 'PRESETS', {})
    self.CYCLES = getattr(module, 'CYCLES', ())
    self.environments = getattr(module, 'environments', registry)
    self.make_agent = getattr(module, 'make_agent', None)
    if not (dataclasses.is_dataclass(self.Config) and issubclass(self.Config, CommonConfig)):
      raise ValueError(
        f'{name}: Config is no dataclass with the options of every program; make it a subclass of '
        'programs.options.common.CommonConfig or of the Config of another program.'
      )
    for field in dataclasses.fields(self.Config):
      if type(field.default) not in _TYPES:
        raise ValueError(
          f'{name}: the option {field.name} of Config needs a default that a flag could have: a bool, '
          'int, float, string or tuple of ints.'
        )

  def make_program(self, config: Any) -> lp.Program:
    """Returns the program graph.

    Raises:
      ValueError: one sentence, if the user's function raises, or returns something else.
    """
    with own_file.explained(f'{self._flag}: calling it', self._path):
      program = self._function(config)
    if not isinstance(program, lp.Program):
      raise ValueError(f'{self._flag} returned a {type(program).__name__}, which is no lp.Program.')
    return program

  def placement(self, config: Any) -> dict[str, Resources]:
    """Returns where each group runs: as the file says, or every node on a CPU worker.

    Raises:
      ValueError: one sentence, if the user's function raises.
    """
    if self._placement is None:
      return {label: Resources() for label in self.make_program(config).groups}
    with own_file.explained(f'{self._flag}: calling placement', self._path):
      return dict(self._placement(config))
