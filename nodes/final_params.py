"""The parameters that a run leaves behind."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from flax import serialization

from nodes import room
from rundir import files


def path(run_dir: str) -> str:
  """Returns where a run's final parameters are, once it has come to its end."""
  return os.path.join(run_dir, 'params', 'final.msgpack')


def save(run_dir: str, params: Any) -> str:
  """Writes parameters to `run_dir/params/final.msgpack`; returns the path."""
  file = path(run_dir)
  os.makedirs(os.path.dirname(file), exist_ok=True)
  with files.replacing(file) as f:
    f.write(serialization.to_bytes(params))
  return file


def save_when_there_is_room(run_dir: str, params: Any, should_stop: Callable[[], bool]) -> None:
  """Writes parameters; waits while the disk is full. See `nodes.room`."""
  room.write_when_there_is_room(lambda: save(run_dir, params), should_stop, path(run_dir))
