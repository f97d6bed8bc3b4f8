"""The unrolls that a run has recorded: `unrolls/format.json`, and chunks of unrolls beside it.

A chunk is a NumPy archive, `unrolls/<milliseconds>-<id of its first unroll>.npz`, with an array
`[N, ...]` for each column. The names sort by time. A chunk appears whole or not at all, and never
changes.

A recorded unroll has `rows` rows. Its last row is the first row of its environment's next unroll, so
each transition between two rows is in exactly one unroll. `agents.types` says what the fields of a row
mean. The columns are the leaves of `agents.types.Unroll` by name, as in 'timestep/reward' or
'extras/q_values', without the core state, and 'unroll_id'. Shapes begin with the row axis where there
is one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import json
import os
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rundir import files, reading
from rundir.errors import NonRetryableError

VERSION = 1
_FORMAT = 'format.json'
_ABANDONED_SECONDS = 600.0  # A killed recorder has left a partial chunk that is older.


class Format(NamedTuple):
  """The layout of the recorded unrolls of a run.

  Attributes:
    rows: of an unroll.
    columns: shape and name of the dtype of each column, without the batch axis.
    version: of the files.
    num_actions: values of each discrete action; () if actions are continuous, or an earlier version has
      recorded them.
  """

  rows: int
  columns: dict[str, tuple[tuple[int, ...], str]]
  version: int = VERSION
  num_actions: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class RecordingOptions:
  """Where unrolls are recorded, and how much of them.

  Attributes:
    run_dir: the run directory.
    max_bytes: of all chunks of the run; several writers may exceed it by a chunk each.
    chunk_bytes: of a chunk, which a recorder holds in memory.
    chunk_seconds: after which a chunk is written though it is not full.
  """

  run_dir: str
  max_bytes: int
  chunk_bytes: int = 1 << 24
  chunk_seconds: float = 60.0


def directory(run_dir: str) -> str:
  """Returns the directory of a run's recorded unrolls."""
  return os.path.join(run_dir, 'unrolls')


def begin(run_dir: str, layout: Format) -> None:
  """Makes the directory and writes the format, or checks that an earlier one is the same.

  Raises:
    NonRetryableError: if the run has recorded unrolls of another layout.
    OSError: if it cannot be written, or the earlier one cannot be read.
  """
  folder = directory(run_dir)
  os.makedirs(folder, exist_ok=True)
  _remove_partial_chunks(folder)
  path = os.path.join(folder, _FORMAT)
  if os.path.exists(path):
    found = _read_format(path)
    if found != layout and found != layout._replace(num_actions=()):
      raise NonRetryableError(
        f'{folder} has unrolls of another layout; leave --record_unrolls out, or move them away.'
      )
    return
  content = json.dumps(layout._asdict(), indent=2).encode()
  with files.replacing(path, files.own_partial(path)) as file:  # Several nodes may begin at once.
    file.write(content)


def read_format(run_dir: str) -> Format:
  """Returns the layout of a run's recorded unrolls.

  Raises:
    NonRetryableError: if there are none, or it cannot be read; one sentence that begins with a path.
  """
  if not os.path.isdir(run_dir):
    raise NonRetryableError(f'{run_dir} does not exist; name the directory of a run.')
  path = os.path.join(directory(run_dir), _FORMAT)
  try:
    return _read_format(path)
  except FileNotFoundError:
    raise NonRetryableError(
      f'{run_dir} has no recorded unrolls; name a run that had --record_unrolls.'
    ) from None
  except OSError as error:
    raise NonRetryableError(f'{path} cannot be read: {error!r}.') from error


def _read_format(path: str) -> Format:
  """Returns the layout in a file.

  Raises:
    NonRetryableError: if the file has another version or is damaged; one sentence.
    OSError: if it cannot be read.
  """
  try:
    found = reading.json_object(path)
  except ValueError as error:
    raise NonRetryableError(f'{path} is damaged: {error}.') from error
  try:
    version = int(found['version'])
    if version != VERSION:
      raise NonRetryableError(
        f'{path} has version {version}, and this Launchpod reads version {VERSION}; record again.'
      )
    columns = {
      str(name): (tuple(map(int, shape)), str(dtype))
      for name, (shape, dtype) in found['columns'].items()
    }
    num_actions = tuple(map(int, found.get('num_actions', ())))
    return Format(int(found['rows']), columns, version, num_actions)
  except NonRetryableError:
    raise
  except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as error:
    raise NonRetryableError(f'{path} cannot be read: {error!r}.') from error


def chunks(run_dir: str) -> list[str]:
  """Returns the paths of a run's chunks, the oldest first."""
  return _found(directory(run_dir), '*.npz')


def _found(folder: str, pattern: str) -> list[str]:
  return sorted(glob.glob(os.path.join(glob.escape(folder), pattern)))


def _remove_partial_chunks(folder: str) -> None:
  """Removes chunks that killed recorders have left, and none that another node may be writing."""
  for path in _found(folder, '*.npz.tmp'):
    with contextlib.suppress(OSError):
      if time.time() - os.path.getmtime(path) > _ABANDONED_SECONDS:
        os.remove(path)


def size(run_dir: str) -> int:
  """Returns the bytes of all chunks of a run, also of those that are not whole yet."""
  total = 0
  for path in _found(directory(run_dir), '*.npz*'):
    with contextlib.suppress(FileNotFoundError):
      total += os.path.getsize(path)
  return total


def write_chunk(run_dir: str, columns: Mapping[str, np.ndarray]) -> None:
  """Writes a chunk atomically.

  Args:
    run_dir: the run directory, after `begin`.
    columns: `[N, ...]` each, among them 'unroll_id', with N of at least 1.

  Raises:
    OSError: if it cannot be written; nothing is left of it.
  """
  name = f'{time.time_ns() // 1_000_000:015d}-{int(columns["unroll_id"][0]):016x}.npz'
  with files.replacing(os.path.join(directory(run_dir), name)) as file:
    np.savez(file, **columns)  # type: ignore[arg-type]  # No column is named allow_pickle.


def column_names(path: str) -> list[str]:
  """Returns the names of the columns of a chunk.

  Raises:
    NonRetryableError: if it cannot be read; one sentence.
  """
  with _opened(path) as archive:
    return list(archive)


def read_chunk(path: str, names: Sequence[str]) -> dict[str, Any]:
  """Returns columns of a chunk, `[N, ...]` each.

  Raises:
    NonRetryableError: if it cannot be read or lacks a column; one sentence.
  """
  with _opened(path) as archive:
    return {name: archive[name] for name in names}


@contextlib.contextmanager
def _opened(path: str) -> Iterator[Any]:
  """Opens a chunk; errors of reading become a NonRetryableError."""
  try:
    with np.load(path, allow_pickle=False) as archive:
      yield archive
  except OSError as error:
    raise NonRetryableError(f'{path} cannot be read: {error}.') from error
  except (ValueError, LookupError, EOFError, zipfile.BadZipFile) as error:
    raise NonRetryableError(f'{path} is damaged: {error}; remove it.') from error
