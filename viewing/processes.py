"""Reads `processes.csv`: what each process of a run does and uses."""

from __future__ import annotations

import dataclasses
import math

from rundir import csv_file, run_directory

_TAIL_BYTES = 1 << 20  # Two samples of each of 4,096 nodes.
_CHUNK_BYTES = 1 << 20
_YEAR_9999 = 253_370_764_800  # In `time.time()` seconds.


@dataclasses.dataclass(frozen=True)
class Sample:
  """The state of a node's process at a time.

  Attributes:
    time: in `time.time()` seconds.
    doing: name of its activity.
    seconds: duration of the activity so far.
    memory_mib: memory of its own, in MiB.
    cpu_seconds: CPU time of this incarnation.
    open_files: number of open descriptors.
    threads: number of threads.
    host: name of its machine; '' in runs of earlier versions.
    idle_seconds: for which cores of that machine were idle, in all; 0 if unknown, nan in such runs.
  """

  time: float
  doing: str
  seconds: float
  memory_mib: float
  cpu_seconds: float
  open_files: float
  threads: float
  host: str
  idle_seconds: float


class Processes:
  """The samples of a run; `update` reads the new ones.

  Attributes:
    latest: the latest sample of each node.
    before: the sample before it.
    began: time of the first sample of the run; nan before it.
  """

  def __init__(self, run_dir: str, tail: int = _TAIL_BYTES):
    """Initialises the samples without reading them.

    Args:
      run_dir: the run directory.
      tail: bytes at the end of the file that the first read covers.
    """
    self._path = run_directory.processes_path(run_dir)
    self._reader = csv_file.CsvReader(self._path)
    self._reader.skip_to_tail(tail)
    self.latest: dict[str, Sample] = {}
    self.before: dict[str, Sample] = {}
    self.began = math.nan

  def update(self) -> None:
    """Reads the rows added since the last call."""
    if math.isnan(self.began):
      first = next(csv_file.numbers(self._path, ['time']), (math.nan,))
      self.began = _time(first[0])
    while rows := self._reader.read(_CHUNK_BYTES):
      for row in rows:
        name, sample = _sample(row, self._reader.columns)
        if name in self.latest:
          self.before[name] = self.latest[name]
        self.latest[name] = sample

  def cores_used(self) -> float:
    """Returns the CPU seconds per second of all nodes between their last two samples.

    Returns nan if it is unknown, or if the nodes run on several machines.
    """
    if self._on_several_machines():
      return math.nan
    shares = map(self.cores_of, self.before)
    known = [share for share in shares if math.isfinite(share)]
    return sum(known) if known else math.nan

  def cores_idle(self) -> float:
    """Returns the idle cores of the machine between the last two samples.

    Returns nan if they are unknown, or if the nodes run on several machines.
    """
    if self._on_several_machines():
      return math.nan
    pairs = ((before, self.latest[node]) for node, before in self.before.items())
    known = [
      (after.idle_seconds - before.idle_seconds) / (after.time - before.time)
      for before, after in pairs
      if before.idle_seconds > 0 and after.time > before.time
    ]
    return max(known, default=math.nan)

  def _on_several_machines(self) -> bool:
    return len({sample.host for sample in self.latest.values()}) > 1

  def cores_of(self, node: str) -> float:
    """Returns the CPU seconds per second of a node between its last two samples; nan if unknown."""
    if node not in self.before:
      return math.nan
    return cores(self.before[node], self.latest[node])


def history(run_dir: str, node: str, most_bytes: int = 1 << 22) -> list[Sample]:
  """Returns the samples of one node, oldest first, from the last `most_bytes` of the file."""
  reader = csv_file.CsvReader(run_directory.processes_path(run_dir))
  reader.skip_to_tail(most_bytes)
  rows = [row for row in reader.read() if row[1:2] == [node.encode()]]
  return [_sample(row, reader.columns)[1] for row in rows]


def cores(before: Sample, after: Sample) -> float:
  """Returns the cores that a node used between two samples; nan across a restart."""
  seconds, used = after.time - before.time, after.cpu_seconds - before.cpu_seconds
  return used / seconds if seconds > 0 and used >= 0 else math.nan


def _time(seconds: float) -> float:
  """Returns a time in `time.time()` seconds; nan if no calendar has it."""
  return seconds if 0 <= seconds < _YEAR_9999 else math.nan


def _sample(row: list[bytes], columns: list[str]) -> tuple[str, Sample]:
  # A row may be shorter or longer than the header, if another version resumed the run.
  cells = dict(zip([*columns, 'host'] if 'host' not in columns else columns, row, strict=False))
  get = lambda name: csv_file.number(cells.get(name, b''))  # noqa: E731
  return cells.get('node', b'').decode(errors='replace'), Sample(
    time=_time(get('time')),
    doing=cells.get('doing', b'').decode(errors='replace'),
    seconds=get('seconds'),
    memory_mib=get('memory_mib'),
    cpu_seconds=get('cpu_seconds'),
    open_files=get('open_files'),
    threads=get('threads'),
    host=cells.get('host', b'').decode(errors='replace').strip(),
    idle_seconds=get('idle_seconds'),
  )
