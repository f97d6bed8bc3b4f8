"""The heartbeat of a node: one a second, from a thread of its process to its supervisor.

Missing heartbeats mean that the process runs no Python: it has stopped, or something holds the
interpreter lock. `nodes.runtime.activity` records what the node does. An activity that is not marked
for too long is a hang as well. This module uses only the standard library, because
`launchers.ray.machines` sends it to machines by value.
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
# A starting node may be silent for this multiple of --node_timeout.
START_FACTOR = 4.0
_FINAL_SECONDS = 60.0
_PATIENT = 1e9  # JSON has no infinity.
_SLOW_FIGURES = 10  # Beats between two counts of open files.
_MIB = 1 << 20
_PAGE = os.sysconf('SC_PAGE_SIZE')


@dataclasses.dataclass(frozen=True)
class Beat:
  """One heartbeat: the state of a node.

  Attributes:
    doing: name of its activity.
    seconds: duration of the activity so far.
    unmarked: seconds since the node last marked its activity, without time spent suspended.
    progress_factor: `unmarked` seconds that do not count as a hang, in multiples of --node_timeout.
    memory_mib: resident memory that its processes do not share, in MiB; see `activity.parts`.
    cpu_seconds: CPU time of this incarnation, of those processes.
    open_files: number of open descriptors.
    threads: number of threads, Python or not.
    host: name of its machine.
    returned: whether its work has returned, so that it may exit.
    heartbeat_factor: seconds to the next heartbeat that do not count as a hang, in the same multiples.
    has_worked: whether this incarnation has finished its start-up.
    idle_seconds: for which cores of its machine were idle, summed over them, since that started; 0 if
      unknown.
  """

  doing: str
  seconds: float
  unmarked: float
  progress_factor: float
  memory_mib: float
  cpu_seconds: float
  open_files: int
  threads: int
  host: str = ''
  returned: bool = False
  heartbeat_factor: float = 1.0
  has_worked: bool = False
  idle_seconds: float = 0.0

  def pack(self) -> bytes:
    """Returns the beat as one line of JSON."""
    return json.dumps(dataclasses.asdict(self)).encode() + b'\n'


def unpack(line: bytes) -> Beat | None:
  """Returns the beat in a line; None if the line holds none."""
  try:
    return Beat(**json.loads(line))
  except (ValueError, TypeError):
    return None


def find_hang(
  beat: Beat | None, age: float, timeout: float, listening_seconds: float = math.inf
) -> tuple[str, float]:
  """Returns how a node hangs, in words, and for how many seconds; ('', 0.0) if it does not.

  Args:
    beat: its latest heartbeat; None before the first.
    age: seconds since that heartbeat; before the first, since the start of the process.
    timeout: --node_timeout, in seconds.
    listening_seconds: seconds for which the caller could have received a heartbeat.
  """
  silence = min(age, listening_seconds)
  if silence > (START_FACTOR if beat is None else beat.heartbeat_factor) * timeout:
    return f'has sent no heartbeat for {silence:.0f} s', silence
  if beat is not None and age < timeout and beat.unmarked > beat.progress_factor * timeout:
    return f'has made no progress for {beat.unmarked:.0f} s ({beat.doing})', beat.unmarked
  return '', 0.0


class HeartbeatSender:
  """The thread in a node that sends its heartbeat."""

  def __init__(self, send: Callable[[Beat], None]):
    """Initialises a heart; call `start` next.

    Args:
      send: receives each beat. If it raises an OSError, the thread ends.
    """
    self._send = send
    # Without it, an older beat could overtake the first with `returned`.
    self._order = threading.Lock()
    self._returned = False
    self._count = self._open_files = self._threads = 0
    self._in_common_mib = 0.0
    self._last = time.monotonic()
    self._unmarked = 0.0
    self._marked = 0.0

  def start(self) -> None:
    """Sends the first beat, so that a hang right after it has a process id; then starts the thread."""
    if self.beat():
      threading.Thread(target=self._run, name='heartbeat', daemon=True).start()

  def returned(self) -> None:
    """Sends a beat at once: the node's work has returned. Later beats say so too."""
    with contextlib.suppress(OSError), self._order:
      self._returned = True
      self._send(self._beat())

  def beat(self) -> bool:
    """Sends a beat if the process has a descriptor left; returns whether to go on sending."""
    with self._order:
      try:
        beat = self._beat()
      except OSError:  # Out of descriptors, perhaps for a moment.
        return True
      try:
        self._send(beat)
      except OSError:
        return False
      return True

  def _run(self) -> None:
    pause = threading.Event()
    pause.wait(PERIOD_SECONDS)
    while self.beat():
      pause.wait(PERIOD_SECONDS)

  def _beat(self) -> Beat:
    from nodes.runtime import activity  # Not needed to listen.

    now, latest = time.monotonic(), activity.latest()
    # A suspended process cannot mark its activity, so each beat adds at most three periods.
    self._unmarked += min(now - self._last, 3 * PERIOD_SECONDS)
    if latest.marked != self._marked:
      self._unmarked = min(now - latest.marked, 3 * PERIOD_SECONDS)
      self._marked = latest.marked
    self._last = now
    if self._count % _SLOW_FIGURES == 0:
      self._open_files, self._threads = len(os.listdir('/proc/self/fd')), _num_threads()
      if not self._count or self._in_common_mib:  # It only ever falls.
        self._in_common_mib = _memory_in_common_mib()
    self._count += 1
    memory, cpu = _memory_mib('self') - self._in_common_mib, time.process_time()
    for pid in list(activity.parts):
      with contextlib.suppress(OSError):  # It has ended.
        memory, cpu = memory + _memory_mib(str(pid)), cpu + _cpu_seconds(pid)
    with open('/proc/uptime') as f:
      _, idle = map(float, f.read().split())
    return Beat(
      doing=latest.activity.name,
      seconds=round(now - latest.began, 1),
      unmarked=round(self._unmarked, 1),
      progress_factor=min(latest.activity.progress_factor, _PATIENT),
      memory_mib=round(memory, 1),
      cpu_seconds=round(cpu, 2),
      open_files=self._open_files,
      threads=self._threads,
      host=os.uname().nodename,
      returned=self._returned,
      heartbeat_factor=min(latest.activity.heartbeat_factor, _PATIENT),
      has_worked=activity.has_worked(),
      idle_seconds=idle,
    )


def _memory_mib(process: str) -> float:
  with open(f'/proc/{process}/statm') as f:
    _, resident, shared = map(int, f.read().split()[:3])
  return (resident - shared) * _PAGE / _MIB


def _memory_in_common_mib() -> float:
  """Returns how much of this process's `_memory_mib` it shares with the process that forked it.

  The kernel takes milliseconds to count it. Less than a MiB counts as nothing: its two counts differ.
  """
  with contextlib.suppress(OSError), open('/proc/self/smaps_rollup') as f:
    for line in f:
      if line.startswith('Private_Dirty:'):
        in_common = _memory_mib('self') - int(line.split()[1]) / 1024
        return in_common if in_common >= 1.0 else 0.0
  return 0.0


def _cpu_seconds(pid: int) -> float:
  with open(f'/proc/{pid}/stat') as f:
    user, system = f.read().rpartition(')')[2].split()[11:13]
  return (int(user) + int(system)) / os.sysconf('SC_CLK_TCK')


def _num_threads() -> int:
  return len(os.listdir('/proc/self/task'))


def pipe_sender() -> Callable[[Beat], None]:
  """Claims the descriptor in `VARIABLE`, so that children of the node do not inherit it.

  Returns:
    A function that writes a beat to the descriptor as one line. It drops a beat if the pipe is full. For
    the last beat it waits up to 60 seconds for room. It raises OSError if there is no descriptor, or no
    supervisor reads it.
  """
  fd = int(os.environ.pop(VARIABLE, '-1'))
  if fd >= 0:
    os.set_inheritable(fd, False)
    os.set_blocking(fd, False)

  def send(beat: Beat) -> None:
    if fd >= 0 and beat.returned:
      room = select.poll()  # `select.select` rejects descriptors from 1,024 on.
      room.register(fd, select.POLLOUT)
      room.poll(1000 * _FINAL_SECONDS)
    # The pipe is full if the supervisor is suspended; it then holds enough beats.
    with contextlib.suppress(BlockingIOError):
      os.write(fd, beat.pack())

  return send


class Listener:
  """Reads the heartbeat of one incarnation of a node.

  Attributes:
    beat: the latest; None before the first.
  """

  def __init__(self, read: Callable[[], bytes]):
    """Initialises a listener.

    Args:
      read: returns the bytes received since the last call, b'' if none; does not block.
    """
    self._read = read
    self._rest = b''
    self.beat: Beat | None = None
    self._heard = time.monotonic()

  def poll(self) -> Beat | None:
    """Reads new heartbeats; returns the latest."""
    *lines, self._rest = (self._rest + self._read()).split(b'\n')
    for line in reversed(lines):
      beat = unpack(line)
      if beat is not None:
        self.beat, self._heard = beat, time.monotonic()
        break
    return self.beat

  def age(self) -> float:
    """Returns the seconds since the latest beat, or since construction before the first."""
    return time.monotonic() - self._heard


def pipe_reader(fd: int) -> Callable[[], bytes]:
  """Returns a function that reads a pipe without blocking; it returns b'' at end of file too."""
  os.set_blocking(fd, False)

  def read() -> bytes:
    parts = []
    with contextlib.suppress(OSError):
      while part := os.read(fd, 1 << 16):
        parts.append(part)
    return b''.join(parts)

  return read
