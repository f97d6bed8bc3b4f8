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
  """A user's file with the attributes of a program module; missing ones have defaults.

  Attributes:
    Config: the file's; by default `InferenceConfig`.
    PRESETS, NAMED_PRESETS, CYCLES, make_agent: the file's; by default empty, empty, empty and None.
    environments: the file's; by default `environments.registry`.
  """

  def __init__(self, name: own_file.Named):
    """Imports the file.

    Raises:
      ValueError: one sentence, if the import fails or an option of Config has no flag type.
    """
    self._function, module = name.load(), name.file.load()
    self._flag, self._path = f'--program={name}', name.file.path
    self._placement = getattr(module, 'placement', None)
    self.Config = getattr(module, 'Config', InferenceConfig)
    self.PRESETS = getattr(module, 'PRESETS', {})
    self.NAMED_PRESETS = getattr(module, 'NAMED_PRESETS', {})
    self.CYCLES = getattr(module, 'CYCLES', ())
    self.environments = getattr(module, 'environments', registry)
    self.make_agent = getattr(module, 'make_agent', None)
    if not (dataclasses.is_dataclass(self.Config) and issubclass(self.Config, CommonConfig)):
      raise ValueError(
        f'{name}: Config is not a dataclass with the options of every program; make it a subclass of '
        'programs.options.common.CommonConfig or of the Config of another program.'
      )
    for field in dataclasses.fields(self.Config):
      if type(field.default) not in _TYPES:
        raise ValueError(
          f'{name}: the option {field.name} of Config needs a default of a flag type: bool, int, float, '
          'string or tuple of ints.'
        )

  def make_program(self, config: Any) -> lp.Program:
    """Returns the program graph.

    Raises:
      ValueError: one sentence, if the user's function raises or does not return an `lp.Program`.
    """
    with own_file.explained(f'{self._flag}: calling it', self._path):
      program = self._function(config)
    if not isinstance(program, lp.Program):
      raise ValueError(f'{self._flag} returned a {type(program).__name__}, which is no lp.Program.')
    return program

  def placement(self, config: Any) -> dict[str, Resources]:
    """Returns the resources of each group: those of the file, or a CPU worker for every node.

    Raises:
      ValueError: one sentence, if the user's function raises.
    """
    if self._placement is None:
      return {label: Resources() for label in self.make_program(config).groups}
    with own_file.explained(f'{self._flag}: calling placement', self._path):
      return dict(self._placement(config))
