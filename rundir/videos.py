"""The videos of a run: GIF files in `videos/`, each also in an event file of its own for TensorBoard.

Both have names that sort by actor steps, so that no clock that is set back changes their order.
"""

from __future__ import annotations

import contextlib
import os

from rundir import files, reading

_SUFFIX = '.gif'


def directory(run_dir: str) -> str:
  """Returns the directory of the videos."""
  return os.path.join(run_dir, 'videos')


def paths(run_dir: str) -> list[str]:
  """Returns the paths of the videos, those of fewer actor steps first."""
  return _paths(directory(run_dir), _SUFFIX)


def write(run_dir: str, actor_steps: int, frames: int, gif: bytes, kept: int) -> None:
  """Writes a video and deletes the oldest ones, but first those of steps that a resumed run has lost.

  Args:
    run_dir: the run directory.
    actor_steps: names the file; a video of the same number is replaced.
    frames: environment frames, its step in TensorBoard.
    gif: the content of the file.
    kept: number of videos to keep, at least 1.

  Raises:
    OSError: if it cannot be written.
  """
  from rundir.event_file import EventFile  # Readers of videos need no TensorBoard.

  events = os.path.join(run_dir, 'tensorboard', 'videos')
  path = os.path.join(directory(run_dir), f'{actor_steps:012d}{_SUFFIX}')
  # Behind the files of earlier versions, whose names have a time there.
  name = f'events.out.tfevents.video-{actor_steps:012d}'
  # Before the new video is written, so that a full disk has room for it.
  _make_room(paths(run_dir), path, kept)
  _make_room(_paths(events, ''), os.path.join(events, name), kept)
  files.write(path, gif)
  file = EventFile(events, name)
  try:
    file.write_gif(frames, 'video', gif)
  finally:
    file.close()


def _make_room(found: list[str], new: str, kept: int) -> None:
  """Deletes all but `kept - 1` of the other paths: those after `new` first, then the oldest."""
  others = [path for path in found if path > new] + [path for path in found if path < new]
  for path in others[: max(0, len(others) - kept + 1)]:
    with contextlib.suppress(FileNotFoundError):
      os.remove(path)


def _paths(folder: str, suffix: str) -> list[str]:
  return [os.path.join(folder, name) for name in reading.names(folder) if name.endswith(suffix)]
