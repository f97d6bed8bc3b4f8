"""Where the export of a run to a tracker has got to: a file in the run directory."""

from __future__ import annotations

import copy
import fcntl
import hashlib
import os
import secrets
from typing import Any

from rundir import files, reading
from viewing.trackers.stream import Cursor

_FORMAT = 1


class Bookmark:
  """The place of an export, kept in `RUN_DIR/trackers/`.

  It has no secrets. An export that begins to send records first writes which ones. If it is killed, the
  next one sends the same records again, with the same numbers. The tracker can then drop those that it
  has.

  Attributes:
    key: random, made with the bookmark; identifies the export.
    run_id: the tracker's name of the run; '' before it has one.
    options: with which the records are made.
    cursor: up to which the tracker has all records; see `stream.Stream`.
    sending: the cursor up to which records may have been sent; None if nothing is under way.
    count: number of records up to `cursor`.
    ended: whether the tracker knows how the run ended.
    open: whether an export uses it, or was killed while it did.
  """

  def __init__(self, run_dir: str, tracker: str, destination: str, options: dict[str, Any]):
    """Opens a bookmark, or begins one, and locks it until this process ends.

    Args:
      run_dir: the run directory.
      tracker: its name.
      destination: the server and the project; each has a bookmark of its own.
      options: by name; None for that of the earlier export.

    Raises:
      ValueError: if the run directory cannot be written, another process exports the run, or an option
        differs from that of the earlier export; one sentence.
    """
    digest = hashlib.sha256(destination.encode()).hexdigest()[:8]
    self._path = os.path.join(run_dir, 'trackers', f'{tracker}-{digest}.json')
    self._lock = _locked(self._path, run_dir)
    kept: dict[str, Any] = {}
    if os.path.exists(self._path):
      try:
        kept = reading.json_object(self._path)
      except (OSError, ValueError) as error:
        raise ValueError(
          f'{self._path} cannot be read: {error}; delete it to export the run again.'
        ) from error
      if kept.get('format') != _FORMAT:
        raise ValueError(f'{self._path} is of another version; delete it to export the run again.')
    self.key: str = kept.get('key') or secrets.token_hex(8)
    self.run_id: str = kept.get('run_id', '')
    self.options: dict[str, Any] = kept.get('options', {})
    self.cursor: Cursor = kept.get('cursor', {})
    self.sending: Cursor | None = kept.get('sending')
    self.count: int = kept.get('count', 0)
    self.ended: bool = kept.get('ended', False)
    self.open: bool = kept.get('open', False)
    for name, value in options.items():
      before = self.options.get(name)
      if before is not None and value is not None and before != value:
        raise ValueError(
          f'--{name}={value}: the export of {run_dir} so far has --{name}={before}; leave it out.'
        )

  def set_options(self, options: dict[str, Any]) -> None:
    """Sets the options that the earlier export does not have."""
    self.options = options | self.options

  def reset(self) -> None:
    """Begins the export again, as another run of the tracker."""
    self.key, self.run_id = secrets.token_hex(8), ''
    self.cursor, self.sending, self.count, self.ended = {}, None, 0, False

  def begin(self, cursor: Cursor) -> None:
    """Records that the records up to a cursor are being sent."""
    self.sending = copy.deepcopy(cursor)
    self.ended = False
    self.save()

  def commit(self, count: int) -> None:
    """Records that they, `count` records, have been sent."""
    assert self.sending is not None
    self.cursor, self.sending = self.sending, None
    self.count += count
    self.save()

  def save(self) -> None:
    """Writes the bookmark."""
    names = ('key', 'run_id', 'options', 'cursor', 'sending', 'count', 'ended', 'open')
    files.write_json(
      self._path, {'format': _FORMAT} | {name: getattr(self, name) for name in names}
    )


def _locked(path: str, run_dir: str) -> int:
  try:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    lock = os.open(f'{path}.lock', os.O_RDWR | os.O_CREAT, 0o644)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError as error:
    raise ValueError(
      f'{run_dir} is being exported there by another process; let it end.'
    ) from error
  except OSError as error:
    raise ValueError(
      f'{run_dir}/trackers cannot be written, where an export keeps its place: {error.strerror}.'
    ) from error
  return lock
