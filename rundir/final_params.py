"""The final parameters of a run."""

from __future__ import annotations

import os

from rundir import files


def path(run_dir: str) -> str:
  """Returns the file of a run's final parameters, written at the end of training."""
  return os.path.join(run_dir, 'params', 'final.msgpack')


def save(run_dir: str, params: bytes) -> str:
  """Writes serialised parameters to `run_dir/params/final.msgpack`; returns the path."""
  file = path(run_dir)
  files.write(file, params)
  return file
