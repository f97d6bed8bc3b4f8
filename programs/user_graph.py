"""What a user's own programs share: a function that builds the graph, and perhaps one that places it."""

from __future__ import annotations

from typing import Any

import launchpad as lp

from environments import user_file
from launchers.placement import Resources


class UserGraph:
  """The functions of a user's file. An error in one becomes a ValueError of one sentence."""

  def __init__(self, name: user_file.Named):
    """Imports the file.

    Raises:
      ValueError: if the import fails; one sentence.
    """
    self._function, self._module = name.load(), name.file.load()
    self._flag, self._path = f'--program={name}', name.file.path
    self._place = getattr(self._module, 'placement', None)

  def _built(self, *args: Any, **kwargs: Any) -> lp.Program:
    """Calls the function that builds the graph."""
    with user_file.user_code_errors(f'{self._flag}: calling it', self._path):
      program = self._function(*args, **kwargs)
    if not isinstance(program, lp.Program):
      raise ValueError(f'{self._flag} must return an lp.Program, not {type(program).__name__}.')
    return program

  def _placed(self, config: Any) -> dict[str, Resources] | None:
    """Calls the file's `placement`; returns None if it has none."""
    if self._place is None:
      return None
    with user_file.user_code_errors(f'{self._flag}: calling placement', self._path):
      return dict(self._place(config))
