"""The films of a run: GIF files in `films/`, each also in an event file of its own for TensorBoard."""

from __future__ import annotations

import contextlib
import os

from rundir import files

_SUFFIX = '.gif'


def directory(run_dir: str) -> str:
  """Returns the directory of the films."""
  return os.path.join(run_dir, 'films')


def paths(run_dir: str) -> list[str]:
  """Returns the paths of the films, oldest first."""
  return _oldest_first(directory(run_dir), _SUFFIX)


def write(run_dir: str, actor_steps: int, frames: int, gif: bytes, kept: int) -> None:
  """Writes a film and deletes the oldest ones.

  Args:
    run_dir: the run directory.
    actor_steps: names the file; a film of the same number is replaced.
    frames: environment frames, its step in TensorBoard.
    gif: the content of the file.
    kept: number of films to keep, at least 1.

  Raises:
    OSError: if it cannot be written.
  """
  from rundir.event_file import EventFile  # Readers of films need no TensorBoard.

  events = os.path.join(run_dir, 'tensorboard', 'films')
  path = os.path.join(directory(run_dir), f'{actor_steps:012d}{_SUFFIX}')
  # Before the new film is written, so that a full disk has room for it.
  _delete([other for other in paths(run_dir) if other != path], kept - 1)
  _delete(_oldest_first(events, ''), kept - 1)
  files.write(path, gif)
  file = EventFile(events)
  try:
    file.write_gif(frames, 'film', gif)
  finally:
    file.close()


def _delete(oldest_first: list[str], kept: int) -> None:
  for path in oldest_first[: max(0, len(oldest_first) - kept)]:
    with contextlib.suppress(FileNotFoundError):
      os.remove(path)


def _oldest_first(folder: str, suffix: str) -> list[str]:
  try:
    with os.scandir(folder) as entries:
      found = [(e.stat().st_mtime_ns, e.path) for e in entries if e.name.endswith(suffix)]
  except FileNotFoundError:
    return []
  return [path for _, path in sorted(found)]
