"""Records of every produced or loaded unroll, every relabelled copy and every unroll trained on.

Off by default. A record is a few bytes that reach the kernel before the call returns, so killing the
process afterwards loses none.
"""

from __future__ import annotations

import os

import numpy as np

PRODUCED = 'produced'
LOADED = 'loaded'
RELABELLED = 'relabelled'
TRAINED = 'trained'


class Audit:
  """Appends records to `run_dir/audit/<name>`."""

  def __init__(self, run_dir: str, name: str):
    """Opens the file.

    Args:
      run_dir: the run directory; '' to record nothing.
      name: PRODUCED, LOADED, RELABELLED or TRAINED.
    """
    self._file: int | None = None
    if run_dir:
      os.makedirs(os.path.join(run_dir, 'audit'), exist_ok=True)
      self._file = os.open(_path(run_dir, name), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

  def record(self, unroll_ids: np.ndarray, of: int | np.ndarray = 0) -> None:
    """Appends one record per unroll.

    Args:
      unroll_ids: int64 `[N]`.
      of: the learner step that trained on them, from 1; of copies, the ids of their origins, int64
        `[N]`; 0 for produced and loaded unrolls.
    """
    if self._file is not None:
      others = np.broadcast_to(np.asarray(of, np.int64), unroll_ids.shape)
      records = np.stack([unroll_ids, others], axis=1).tobytes()
      while records:  # On a full disk a part is written, and the next attempt raises.
        records = records[os.write(self._file, records) :]


def origins(run_dir: str, unroll_ids: np.ndarray) -> np.ndarray:
  """Returns the ids of the unrolls that relabelled copies were made from, int64 `[N]`.

  Args:
    run_dir: the run directory.
    unroll_ids: int64 `[N]`, of copies and others; an unroll that is not a copy is its own origin.
  """
  origin = dict(read(run_dir, RELABELLED).tolist())
  return np.array([origin.get(i, i) for i in unroll_ids.tolist()], np.int64)


def read(run_dir: str, name: str) -> np.ndarray:
  """Returns a run's records in order, int64 `[N, 2]`: unroll id, and learner step or origin."""
  if not os.path.exists(_path(run_dir, name)):
    return np.zeros((0, 2), np.int64)
  return np.fromfile(_path(run_dir, name), np.int64).reshape(-1, 2)


def _path(run_dir: str, name: str) -> str:
  return os.path.join(run_dir, 'audit', name)
