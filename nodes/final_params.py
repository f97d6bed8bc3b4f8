"""The parameters that a run leaves behind."""

from __future__ import annotations

import os
from typing import Any

from flax import serialization


def path(run_dir: str) -> str:
  """Returns where a run's final parameters are, once it has come to its end."""
  return os.path.join(run_dir, 'params', 'final.msgpack')


def save(run_dir: str, params: Any) -> str:
  """Writes parameters to `run_dir/params/final.msgpack`; returns the path."""
  file = path(run_dir)
  os.makedirs(os.path.dirname(file), exist_ok=True)
  with open(file + '.tmp', 'wb') as f:
    f.write(serialization.to_bytes(params))
  os.replace(file + '.tmp', file)
  return file
