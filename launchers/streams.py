"""Prints to standard streams that may be closed, missing from the start, blocked, or full.

What is printed may quote a node, a file of a run or a name of the user's. `printable` keeps the control
sequences in it from the terminal, which would obey them.
"""

from __future__ import annotations

import contextlib
import io
import os
import queue
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import IO, Any, cast

from launchers import descriptors

CLOSE_SECONDS = 5.0  # For the last sentences of an outlet, whose stream may be blocked.
_WAITING = 1000  # Sentences of an outlet.
# Colours, and every other control character except line ends and tabs.
_CONTROL = re.compile(r'(\x1b\[[\d;:]*m)|[\x00-\x08\x0b-\x1f\x7f-\x9f]')


def printable(text: str) -> str:
  """Returns text without colours, and with escapes such as \\x1b for other control characters.

  A carriage return, with which a line overwrites itself, ends the line.
  """
  text = text.replace('\r\n', '\n').replace('\r', '\n')
  return _CONTROL.sub(lambda found: '' if found[1] else f'\\x{ord(found[0]):02x}', text)


def say(sentence: str, file: IO[str] | None = None) -> None:
  """Prints a sentence, to stdout if `file` is None. Ignores a closed terminal."""
  with contextlib.suppress(OSError, ValueError):
    print(printable(sentence), file=file, flush=True)


@contextlib.contextmanager
def announced_if_slow(sentence: str, seconds: float) -> Iterator[None]:
  """Prints a sentence to stderr if the block has not ended after some seconds."""
  timer = threading.Timer(seconds, say, (sentence, sys.stderr))
  timer.daemon = True
  timer.start()
  try:
    yield
  finally:
    timer.cancel()


class Outlet:
  """Prints sentences from a thread, in order.

  A stream that is open but not read, such as a pipe to a pager, blocks the thread and not the caller.
  """

  def __init__(self, file: IO[str] | None = None):
    """Starts the thread; call `close` at the end.

    Args:
      file: receives the sentences; None for stdout. It may be closed at any time.
    """
    self._file = file
    self._sentences: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    self._left_out = 0
    self._last = ''
    self._thread = threading.Thread(target=self._print, name='outlet', daemon=True)
    self._thread.start()
    _open.append(self)

  def say(self, sentence: str) -> None:
    """Prints a sentence soon; leaves it out if 1,000 others are waiting."""
    if self._sentences.qsize() < _WAITING:
      self._sentences.put(sentence)
    else:
      self._left_out += 1

  def close(self, timeout: float | None = None, last: str = '') -> None:
    """Prints what is waiting, and a last text. After a timeout, in seconds, `flush` prints the rest."""
    self._last = self._last or last
    self._sentences.put(None)
    self._thread.join(timeout)
    if not self._thread.is_alive() and self in _open:
      _open.remove(self)

  def _print(self) -> None:
    while (sentence := self._sentences.get()) is not None:
      say(sentence, self._file)
    if self._left_out:
      say(f'({self._left_out} later messages are left out: nothing read them)', self._file)
    if self._last:
      say(self._last, self._file)


_open: list[Outlet] = []


def ensure_streams() -> None:
  """Makes stdout and stderr take any text, for the rest of this process.

  A stream that is missing becomes the null device. Characters that the terminal's encoding lacks, as in
  the output of a node, become escapes. So do control characters, see `printable`.
  """
  descriptors.open_standard()
  for name in ('stdout', 'stderr'):
    stream = getattr(sys, name)
    if stream is None:
      stream = open(os.devnull, 'w')  # noqa: SIM115  is open as long as the process
    stream.reconfigure(errors='backslashreplace')
    setattr(sys, name, _Printable(stream))


def unfiltered(stream: IO[str]) -> IO[str]:
  """Returns a stream as it was before `ensure_streams`, for text with colours of our own."""
  return cast(IO[str], getattr(stream, 'unfiltered', stream))


class _Printable:
  """A text stream that writes what `printable` returns."""

  def __init__(self, stream: IO[str]):
    self.unfiltered = unfiltered(stream)

  def write(self, text: str) -> int:
    self.unfiltered.write(printable(text))
    return len(text)

  def writelines(self, lines: Iterable[str]) -> None:
    for line in lines:
      self.write(line)

  def __getattr__(self, name: str) -> Any:
    return getattr(self.unfiltered, name)


class _LossyFile(io.FileIO):
  def write(self, data: Any) -> int:
    with contextlib.suppress(OSError):
      super().write(data)
    return len(data)


def drop_unwritable_output() -> None:
  """Makes stdout and stderr drop what cannot be written, as to a log on a full disk.

  Otherwise a `print` in an environment ends its node, and a traceback changes the exit code.
  """
  for number, name in ((1, 'stdout'), (2, 'stderr')):
    file: Any = _LossyFile(number, 'w', closefd=False)  # Unbuffered, as with `python -u`.
    text = io.TextIOWrapper(file, 'utf-8', errors='backslashreplace', write_through=True)
    setattr(sys, name, text)


def flush() -> None:
  """Closes every outlet, and flushes stdout and stderr. Ignores a closed terminal."""
  for outlet in list(_open):
    outlet.close()
  for stream in (sys.stdout, sys.stderr):
    with contextlib.suppress(OSError, ValueError):
      stream.flush()
