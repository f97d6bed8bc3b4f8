"""A user's own Python file, given by flag: --env=path/to/mine.py:make, --program=path/to/mine.py:f.

The file is pickled as text, and its classes, functions and their instances by value, so nodes run
without the file. Modules that it imports must be importable there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import linecache
import os
import re
import sys
import textwrap
import threading
import tokenize
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

import cloudpickle

from environments import errors, hidden_modules

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Folders of the checkout that .dockerignore excludes, besides hidden ones.
NOT_IN_IMAGE = ('runs', 'site', 'wandb', 'mlruns')
_SPEC = re.compile(r'(?P<path>.+\.py):(?P<name>[^:]*)(:(?P<task>.*))?', re.DOTALL)
_LOADING = threading.RLock()
_LONGEST = 500  # Characters of the text of an error.


@dataclasses.dataclass(frozen=True)
class UserFile:
  """The content of a file at the time it was read.

  Attributes:
    path: the absolute path.
    text: the source.
  """

  path: str
  text: str

  def load(self) -> ModuleType:
    """Returns the file's module, one per process; exceptions of the user's code propagate."""
    stem = os.path.splitext(os.path.basename(self.path))[0]
    name = f'{stem}_{zlib.crc32(f"{self.path}:{self.text}".encode()):08x}'
    with _LOADING:
      if name not in sys.modules:
        self._load(name)
      return sys.modules[name]

  def _load(self, name: str) -> None:
    directory = os.path.dirname(self.path)
    if directory not in sys.path:  # Python does so for a script.
      sys.path.append(directory)
    linecache.cache[self.path] = len(self.text), None, self.text.splitlines(True), self.path
    module = ModuleType(name)
    module.__file__ = self.path
    sys.modules[name] = module
    try:
      exec(compile(self.text, self.path, 'exec', dont_inherit=True), module.__dict__)
    except BaseException:
      del sys.modules[name]
      raise
    cloudpickle.register_pickle_by_value(module)
    for other in list(sys.modules.values()):
      file = getattr(other, '__file__', None) or ''
      if os.path.dirname(file) == directory != _ROOT and other.__name__ != '__main__':
        cloudpickle.register_pickle_by_value(other)


@dataclasses.dataclass(frozen=True)
class Named:
  """A callable that loads the file at the first call and calls a class or function in it.

  Attributes:
    file: the file.
    name: the name of the class or function.
    task: the part of the flag after the name.
  """

  file: UserFile
  name: str
  task: str = ''

  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    """Calls the class or function."""
    return self.load()(*args, **kwargs)

  def __str__(self) -> str:
    return f'{self.file.path}:{self.name}' + (f':{self.task}' if self.task else '')

  def load(self) -> Callable[..., Any]:
    """Returns the class or function.

    Raises:
      ValueError: one sentence, if the file cannot be imported or does not define the name.
    """
    with user_code_errors(f'{self}: importing it', self.file.path):
      module = self.file.load()
    found = getattr(module, self.name, None)
    if not callable(found):
      known = [name for name, value in vars(module).items() if callable(value)]
      near = errors.did_you_mean(self.name, known)
      raise ValueError(f'{self}: the file defines no {self.name}{near or "."}')
    return found


def is_spec(text: str) -> bool:
  """Returns whether a flag's value names a user's own file."""
  return text.endswith('.py') or _SPEC.fullmatch(text) is not None


def named(spec: str, beside: str = '') -> Named:
  """Reads a user's file without running it.

  Args:
    spec: path/to/file.py:name or path/to/file.py:name:task.
    beside: a file to whose directory `spec` is relative; empty for the working directory.

  Raises:
    ValueError: one sentence, if the file cannot be read, or no name is given.
  """
  found = _SPEC.fullmatch(spec)
  if found is None or not found['name']:
    raise ValueError(
      f'{spec} does not say which function or class of the file; write path/to/file.py:NAME.'
    )
  path = _absolute(found['path'], beside)
  try:
    with tokenize.open(path) as f:
      return Named(UserFile(path, f.read()), found['name'], found['task'] or '')
  except OSError as error:
    raise ValueError(f'{spec}: {path} cannot be read: {error.strerror}.') from error
  except (SyntaxError, UnicodeDecodeError) as error:
    raise ValueError(f'{spec}: {path} is not a Python file ({error}).') from error


@contextlib.contextmanager
def named_by(flag: str) -> Iterator[None]:
  """Puts the flag before the value with which a ValueError of this module begins."""
  try:
    yield
  except ValueError as error:
    raise ValueError(f'--{flag}={error}') from error


def of_flag(flag: str, spec: str, what: str) -> Named:
  """Reads the file of the class that a flag names, without running it.

  Args:
    flag: the flag, such as 'agent'.
    spec: its value.
    what: what the class is, such as 'an agent'; it takes nothing after its name.

  Raises:
    ValueError: as in `named`, or there is something after the name; one sentence.
  """
  with named_by(flag):
    own = named(spec)
  if own.task:
    raise ValueError(f'--{flag}={own} has {own.task!r} after the name; {what} takes nothing.')
  return own


def carried(name: str) -> str | Named:
  """Returns a name that is valid in every process: for a user's file, it includes the source.

  Args:
    name: an environment or program, from a flag.

  Raises:
    ValueError: as in `named`.
  """
  return named(name) if is_spec(name) else name


def paths(values: Iterable[object]) -> list[str]:
  """Returns the absolute paths of the files that values of flags name; other values name none."""
  found = [_SPEC.fullmatch(value) for value in values if isinstance(value, str)]
  return [_absolute(match['path']) for match in found if match]


def absolute(name: str) -> str:
  """Returns the name with the path of a user's file made absolute; other names unchanged."""
  found = _SPEC.fullmatch(name)
  return _absolute(found['path']) + name[found.end('path') :] if found else name


def in_checkout(name: str) -> str:
  """Returns the name with the path of a user's file relative to the directory of launch.py.

  Raises:
    ValueError: one sentence, if the file is not in a subdirectory of it, or .dockerignore excludes it.
  """
  path = absolute(name)
  if not is_spec(name):
    return name
  if not os.path.dirname(path).startswith(_ROOT + os.sep):
    raise ValueError(
      f'{name} is not in a directory of {_ROOT}, from which the image is built; move the file into one.'
    )
  path = path.removeprefix(_ROOT + os.sep)
  first, *others = os.path.dirname(path).split(os.sep)
  if first in NOT_IN_IMAGE or any(part.startswith('.') for part in (first, *others)):
    raise ValueError(f'{name} is left out of the image by .dockerignore; move the file elsewhere.')
  return path


def _absolute(path: str, beside: str = '') -> str:
  return os.path.abspath(os.path.join(os.path.dirname(beside), os.path.expanduser(path)))


@contextlib.contextmanager
def kept_directory() -> Iterator[None]:
  """Returns to the working directory at the end of the block, even if its path has changed meanwhile."""
  here = os.open('.', os.O_PATH | os.O_DIRECTORY)
  try:
    yield
  finally:
    os.fchdir(here)
    os.close(here)


def title(name: str) -> str:
  """Returns a display name: that of a user's file omits directory and function."""
  found = _SPEC.fullmatch(name)
  if found is None:
    return name
  stem = os.path.splitext(os.path.basename(found['path']))[0]
  return f'{stem}:{found["task"]}' if found['task'] else stem


@contextlib.contextmanager
def user_code_errors(what: str, *paths: str) -> Iterator[None]:
  """Converts an exception of a user's code to a ValueError of one sentence that names the line.

  Args:
    what: the operation; starts the sentence.
    *paths: the paths of the user's files; the line may also be in a file beside one of them.
  """
  try:
    yield
  except SyntaxError as error:
    text = (error.text or '').strip()
    raise ValueError(
      f'{what} failed: {error.msg}, at line {error.lineno} of {error.filename}: {text}'
    ) from error
  except (Exception, SystemExit) as error:
    said = textwrap.shorten(str(error), _LONGEST, placeholder=' ...')
    hint = hidden_modules.explain(error, *paths)
    raise ValueError(
      f'{what} raised {type(error).__name__}: {said}{where(error, *paths)}{hint}'
    ) from error


def where(error: BaseException | None, *paths: str) -> str:
  """Returns the user's line that raised an error or its cause, as ', at line 7 of PATH: CODE'.

  Args:
    error: the error.
    *paths: of the user's files; the line may also be in a file beside one of them. The result is '' if
      none of their lines was running.
  """
  folders = {os.path.dirname(path) for path in paths} - {_ROOT, ''}
  while error is not None:
    frames = [
      frame
      for frame in traceback.extract_tb(error.__traceback__)
      if frame.filename in paths or os.path.dirname(frame.filename) in folders
    ]
    if frames:
      return f', at line {frames[-1].lineno} of {frames[-1].filename}: {frames[-1].line}'
    error = error.__cause__
  return ''
