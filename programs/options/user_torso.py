"""A torso of the user's own: --torso=path/to/mine.py:MyTorso."""

from __future__ import annotations

from typing import Any

from agents import options
from environments import user_file


def named(config: Any) -> str:
  """Returns the value of --torso if it names a user's file; else ''."""
  torso = options.value(config, 'torso', '')
  return torso if isinstance(torso, str) and user_file.is_spec(torso) else ''


def carried(config: Any) -> Any:
  """Returns a config that is valid in every process: a user's own torso includes its file's source.

  Raises:
    ValueError: the file cannot be read, or the flag has more than its name; one sentence.
  """
  if not (torso := named(config)):
    return config
  return options.replace(config, torso=user_file.of_flag('torso', torso, 'a torso'))
