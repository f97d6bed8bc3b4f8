"""The heartbeat of a node: one line a second, from a thread of its process to what started it.

Silence means that the process runs no Python: it has stopped, or something holds the interpreter lock.
`nodes.runtime.activity` says what the node does. An activity without a mark for too long is a hang as
well. Needs nothing but the standard library: `launchers.ray.machines` sends it to machines by value.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import select
import threading
import time
from collections.abc import Callable

VARIABLE = 'LAUNCHPOD_HEARTBEAT_FD'
PERIOD_SECONDS = 1.0
_FINAL_SECONDS = 60.0
_SLOW_FIGURES = 10  # Beats from one count of open files to the next.
_MIB = 1 << 20
_PAGE = os.sysconf('SC_PAGE_SIZE')


@dataclasses.dataclass(frozen=True)
class Beat:
  """What a node says of itself.

  Attributes:
    doing: its activity, for people.
    seconds: for how long.
    unmarked: seconds since it has marked its activity, a suspension not counted.
    patience: the `unmarked` seconds that are no hang, in multiples of --node_timeout.
    memory_mib: resident memory that the process shares with no other.
    cpu_seconds: of this life.
    open_files: descriptors.
    threads: of any language.
    returned: whether its work has returned, so that it may leave.
  """

  doing: str
  seconds: float
  unmarked: float
  patience: float
  memory_mib: float
  cpu_seconds: float
  open_files: int
  threads: int
  returned: bool = False

  def pack(self) -> bytes:
    """Returns it as one line."""
    return json.dumps(dataclasses.asdict(self)).encode() + b'\n'


def unpack(line: bytes) -> Beat | None:
  """Returns the beat in a line; None if there is none."""
  try:
    return Beat(**json.loads(line))
  except (ValueError, TypeError):
    return None


class Heart:
  """The thread in a node that sends its heartbeat, where `VARIABLE` says to which descriptor."""

  def __init__(self) -> None:
    """Takes the descriptor over, so that no child of the node has it; call `start`."""
    self._fd = int(os.environ.pop(VARIABLE, '-1'))
    self._count = self._open_files = self._threads = 0
    self._last = time.monotonic()
    self._unmarked = 0.0
    self._marked = 0.0
    if self._fd >= 0:
      os.set_inheritable(self._fd, False)
      os.set_blocking(self._fd, False)

  def start(self) -> None:
    """Begins to beat."""
    if self._fd >= 0:
      threading.Thread(target=self._run, name='heartbeat', daemon=True).start()

  def returned(self) -> None:
    """Says that the node's work has returned, however long the other side takes to make room."""
    if self._fd < 0:
      return
    with contextlib.suppress(OSError):
      select.select([], [self._fd], [], _FINAL_SECONDS)
      os.write(self._fd, dataclasses.replace(self._beat(), returned=True).pack())

  def _run(self) -> None:
    pause = threading.Event()
    while True:
      try:
        os.write(self._fd, self._beat().pack())
      except BlockingIOError:
        pass  # What started the node is suspended; it will find enough beats.
      except OSError:
        return
      pause.wait(PERIOD_SECONDS)

  def _beat(self) -> Beat:
    from nodes.runtime import activity  # Not where this module only listens.

    now, latest = time.monotonic(), activity.latest()
    # A process that was suspended has had no chance to mark anything.
    self._unmarked += min(now - self._last, 3 * PERIOD_SECONDS)
    if latest.marked != self._marked:
      self._unmarked = min(now - latest.marked, 3 * PERIOD_SECONDS)
      self._marked = latest.marked
    self._last = now
    if self._count % _SLOW_FIGURES == 0:
      self._open_files, self._threads = len(os.listdir('/proc/self/fd')), _num_threads()
    self._count += 1
    with open('/proc/self/statm') as f:
      _, resident, shared = map(int, f.read().split()[:3])
    patience = latest.activity.patience
    return Beat(
      doing=latest.activity.name,
      seconds=round(now - latest.began, 1),
      unmarked=round(self._unmarked, 1),
      patience=patience if math.isfinite(patience) else 1e9,  # JSON knows no infinity.
      memory_mib=round((resident - shared) * _PAGE / _MIB, 1),
      cpu_seconds=round(time.process_time(), 2),
      open_files=self._open_files,
      threads=self._threads,
    )


def _num_threads() -> int:
  return len(os.listdir('/proc/self/task'))


class Listener:
  """Reads the heartbeat of one life of a node.

  Attributes:
    beat: the latest; None before the first.
  """

  def __init__(self, read: Callable[[], bytes]):
    """Initialises a listener.

    Args:
      read: returns what has come since the last call, b'' if nothing has; does not block.
    """
    self._read = read
    self._rest = b''
    self.beat: Beat | None = None
    self._heard = time.monotonic()

  def poll(self) -> Beat | None:
    """Takes what has come; returns the latest beat."""
    *lines, self._rest = (self._rest + self._read()).split(b'\n')
    for line in reversed(lines):
      beat = unpack(line)
      if beat is not None:
        self.beat, self._heard = beat, time.monotonic()
        break
    return self.beat

  def age(self) -> float:
    """Returns the seconds since the latest beat; before the first, since listening began."""
    return time.monotonic() - self._heard


def pipe_reader(fd: int) -> Callable[[], bytes]:
  """Returns a function that reads what a pipe holds, without blocking; b'' at its end, too."""
  os.set_blocking(fd, False)

  def read() -> bytes:
    parts = []
    with contextlib.suppress(OSError):
      while part := os.read(fd, 1 << 16):
        parts.append(part)
    return b''.join(parts)

  return read
