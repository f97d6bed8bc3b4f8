"""Reads the files of run directories, which may be damaged, or a stranger's.

A reader finds either a regular file or none: a directory or a pipe of that name is no file.
"""

from __future__ import annotations

import contextlib
import contextvars
import errno
import json
import os
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO

_DEEPEST = 64  # Levels of JSON; views walk through the values by recursion.
_ROOT = contextvars.ContextVar('root', default='')


@contextlib.contextmanager
def without_links(run_dir: str) -> Iterator[None]:
  """Within the block, readers of this module find no file to which a symbolic link in `run_dir` leads.

  They find no file outside `run_dir` either. The path of `run_dir` itself may have links.
  """
  token = _ROOT.set(run_dir)
  try:
    yield
  finally:
    _ROOT.reset(token)


def opened(path: str) -> BinaryIO:
  """Opens a file for reading.

  Raises:
    FileNotFoundError: if there is no such regular file.
    OSError: if it cannot be read.
  """
  file = _open(path, os.O_RDONLY | os.O_NONBLOCK)  # A pipe without a writer blocks otherwise.
  if not stat.S_ISREG(os.fstat(file).st_mode):
    os.close(file)
    raise FileNotFoundError(errno.ENOENT, 'It is not a regular file', path)
  return open(file, 'rb')


def is_file(path: str) -> bool:
  """Returns whether `opened` would open a file."""
  try:
    opened(path).close()
  except OSError:
    return False
  return True


def names(folder: str) -> list[str]:
  """Returns the sorted names in a folder; [] if it cannot be read."""
  try:
    file = _open(folder, os.O_RDONLY | os.O_DIRECTORY)
  except OSError:
    return []
  try:
    return sorted(os.listdir(file))
  finally:
    os.close(file)


def json_object(path: str) -> dict[str, Any]:
  """Returns the JSON object in a file.

  Raises:
    FileNotFoundError: if there is no such regular file.
    OSError: if it cannot be read.
    ValueError: if it has anything else.
  """
  with opened(path) as file:
    return json_object_in(file.read())


def json_object_in(content: bytes) -> dict[str, Any]:
  """Returns the JSON object in the content of a file.

  Raises:
    ValueError: if it has anything else.
  """
  try:
    value = json.loads(content)
    _check_depth(value, _DEEPEST)
  except RecursionError as error:
    raise ValueError('it is nested too deeply') from error
  if not isinstance(value, dict):
    raise ValueError('it has no JSON object')
  return value


def is_number(value: Any) -> bool:
  """Returns whether a value of a JSON file is a number that a float can hold, or nan or inf."""
  if isinstance(value, bool) or not isinstance(value, int | float):
    return False
  try:
    float(value)
  except OverflowError:
    return False
  return True


def _check_depth(value: Any, levels: int) -> None:
  if not levels:
    raise RecursionError
  if isinstance(value, dict | list):
    for each in value.values() if isinstance(value, dict) else value:
      _check_depth(each, levels - 1)


def _open(path: str, flags: int) -> int:
  root = _ROOT.get()
  if not root:
    return os.open(path, flags)
  *folders, name = os.path.relpath(path, root).split(os.sep)
  if os.pardir in (*folders, name):
    raise FileNotFoundError(errno.ENOENT, f'It is not in {root}', path)
  above = os.open(root, os.O_PATH | os.O_DIRECTORY)
  try:
    for folder in folders:
      inner = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
      os.close(above)
      above = inner
    return os.open(name, flags | os.O_NOFOLLOW, dir_fd=above)
  except OSError as error:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
      raise FileNotFoundError(errno.ENOENT, 'A symbolic link leads to it', path) from error
    raise
  finally:
    os.close(above)
