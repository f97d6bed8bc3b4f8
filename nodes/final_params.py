"""The parameters that a run leaves behind."""

from __future__ import annotations

import os
from typing import Any

from flax import serialization


def save(run_dir: str, params: Any) -> str:
  """Writes parameters to `run_dir/params/final.msgpack`; returns the path."""
  path = os.path.join(run_dir, 'params', 'final.msgpack')
  os.makedirs(os.path.dirname(path), exist_ok=True)
  with open(path + '.tmp', 'wb') as f:
    f.write(serialization.to_bytes(params))
  os.replace(path + '.tmp', path)
  return path
