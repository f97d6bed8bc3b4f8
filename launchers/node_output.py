"""Shows the output of nodes in the launcher's terminal, line by line, after the name of the node.

A node writes to its log, under every engine. `NodeOutput` reads the logs. So a terminal that is slow or
gone holds back no node.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import IO

import launchpad as lp

from launchers import streams
from rundir import node_files

# Values of --node_output: the logs alone, or the terminal as well.
FILES, TERMINAL = 'files', 'terminal'
_PERIOD_SECONDS = 0.1
_LOOKS_PER_SECOND = 2000  # At the sizes of logs, of thousands of nodes.
_CLOSE_SECONDS = 5.0
_CHUNK = 1 << 18
# A node that is further ahead of the terminal has the older part of its output left out.
_MAX_BEHIND = 1 << 22
_MAX_LINE = 1 << 16
_COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)  # Of ANSI terminals, none of them red.


class NodeOutput:
  """Copies what nodes write to their logs to a stream, from a thread, until closed."""

  def __init__(self, logs: Mapping[str, str], out: IO[str] | None = None):
    """Initialises the copying; call `start` next. What the logs hold by now is left out.

    Args:
      logs: path of the log of each node, by name; a log need not exist yet.
      out: receives the lines; None for stdout. If it is a terminal, names are coloured, unless the
        environment variable NO_COLOR is set.
    """
    self._out = streams.unfiltered(out or sys.stdout)
    colours = self._out.isatty() and not os.environ.get('NO_COLOR')
    self._followed = [
      _Followed(name, path, _COLOURS[k % len(_COLOURS)] if colours else None)
      for k, (name, path) in enumerate(logs.items())
    ]
    self._closed = threading.Event()
    self.thread = threading.Thread(target=self._copy, name='node-output', daemon=True)

  def start(self) -> None:
    """Starts the thread, which ends when the copying or its terminal is closed."""
    self.thread.start()

  def close(self) -> None:
    """Copies the rest of the logs and ends the thread; gives up after 5 s if the terminal blocks."""
    self._closed.set()
    if self.thread.ident is not None:
      self.thread.join(timeout=_CLOSE_SECONDS)

  def _copy(self) -> None:
    # A closed terminal ends the copying, not the program.
    with contextlib.suppress(OSError, ValueError):
      period = max(_PERIOD_SECONDS, len(self._followed) / _LOOKS_PER_SECOND)
      while not self._closed.wait(period):
        self._pass()
      end = time.monotonic() + _CLOSE_SECONDS
      while self._pass() and time.monotonic() < end:
        pass
      self._write(line for followed in self._followed for line in followed.rest())

  def _pass(self) -> bool:
    """Copies a chunk of every log that has grown; returns whether there was one."""
    grown = [lines for followed in self._followed if (lines := followed.read()) is not None]
    self._write(line for lines in grown for line in lines)
    return bool(grown)

  def _write(self, lines: Iterator[str]) -> None:
    if text := ''.join(f'{line}\n' for line in lines):
      self._out.write(text)
      self._out.flush()


def logs_of(program: lp.Program, run_dir: str) -> dict[str, str]:
  """Returns the path of the log of each node of a program, by name such as 'actor/3'."""
  names = [f'{label}/{k}' for label, nodes in program.groups.items() for k in range(len(nodes))]
  return {name: node_files.log_path(run_dir, name) for name in names}


class _Followed:
  """The log of one node, as far as it has been read."""

  def __init__(self, name: str, path: str, colour: int | None):
    self._path = path
    self._prefix = f'[{name}]' if colour is None else f'\x1b[{colour}m[{name}]\x1b[0m'
    self._offset = self._size()
    self._line = b''

  def _size(self) -> int:
    try:
      return os.path.getsize(self._path)
    except OSError:
      return 0

  def read(self) -> list[str] | None:
    """Returns the next whole lines, with their prefix; None if the log has not grown."""
    size, left_out = self._size(), 0
    if size < self._offset:  # `logs.bound` has truncated it.
      self._offset = 0
    if size == self._offset:
      return None
    if size - self._offset > _MAX_BEHIND:
      left_out = size - _CHUNK - self._offset
      self._offset, self._line = size - _CHUNK, b''
    try:
      with open(self._path, 'rb') as f:
        f.seek(self._offset)
        new = f.read(_CHUNK)
    except OSError:  # Out of descriptors, or a file server is away: perhaps the next pass succeeds.
      return None
    self._offset += len(new)
    *lines, self._line = (self._line + new).split(b'\n')
    if len(self._line) > _MAX_LINE:
      lines, self._line = [*lines, self._line], b''
    shown = [self._shown(line) for line in lines]
    if left_out:
      shown.insert(0, f'{self._prefix} ({left_out:,} bytes are left out here; see {self._path})')
    return shown

  def rest(self) -> list[str]:
    """Returns the last line, if it has no end."""
    return [self._shown(self._line)] if self._line else []

  def _shown(self, line: bytes) -> str:
    # Of a line that redraws itself, such as a progress bar, the last state.
    text = line.rstrip(b'\r').rpartition(b'\r')[2].decode(errors='replace')
    return f'{self._prefix} {streams.printable(text)}'
