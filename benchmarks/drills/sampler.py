"""What each process of a run uses, read from /proc now and then into a CSV file."""

from __future__ import annotations

import csv
import dataclasses
import os
from typing import IO

import psutil

ROLLUP = 'smaps_rollup'
MIB_OF_KIB = 1 / 1024


@dataclasses.dataclass(frozen=True)
class Sample:
  """One process at one moment.

  Attributes:
    seconds: since the drill began.
    node: such as 'actor-0', or 'launcher'.
    life: how many processes the node had before this one.
    pid: of the process.
    age: seconds since the drill first saw the process.
    own_mib: memory that the process alone has written to; not shared, so that the end of another
      process does not change it.
    pss_mib: all memory, of shared pages the process's share.
    descriptors: open ones.
    threads: of the process.
    cpu_seconds: used so far, by all threads.
  """

  seconds: float
  node: str
  life: int
  pid: int
  age: float
  own_mib: float
  pss_mib: float
  descriptors: int
  threads: int
  cpu_seconds: float


COLUMNS = {field.name: field.type for field in dataclasses.fields(Sample)}
_TYPES = {'float': float, 'int': int, 'str': str}


def take(
  process: psutil.Process, node: str, life: int, seconds: float, age: float
) -> Sample | None:
  """Returns a sample of a process; None if it has ended.

  Args:
    process: to look at.
    node: its name.
    life: how many processes the node had before.
    seconds: since the drill began.
    age: seconds since the process was first seen.
  """
  try:
    with open(f'/proc/{process.pid}/{ROLLUP}') as f:
      memory = rollup(f)
    used = process.cpu_times()
    return Sample(
      seconds=round(seconds, 1),
      node=node,
      life=life,
      pid=process.pid,
      age=round(age, 1),
      own_mib=round(memory['Private_Dirty'] * MIB_OF_KIB, 2),
      pss_mib=round(memory['Pss'] * MIB_OF_KIB, 2),
      descriptors=len(os.listdir(f'/proc/{process.pid}/fd')),
      threads=process.num_threads(),
      cpu_seconds=round(used.user + used.system, 2),
    )
  except (OSError, KeyError, psutil.Error):  # A process that ends has no memory, then no files.
    return None


def rollup(lines: IO[str]) -> dict[str, int]:
  """Returns the figures of /proc/PID/smaps_rollup, in KiB, by name."""
  words = (line.split() for line in lines)
  return {w[0][:-1]: int(w[1]) for w in words if len(w) == 3 and w[2] == 'kB'}


class Recorder:
  """Appends samples to a CSV file, each whole and at once."""

  def __init__(self, path: str):
    """Begins the file.

    Args:
      path: of a file that does not exist yet.
    """
    self._file = open(path, 'x', newline='')  # noqa: SIM115  open as long as the drill
    self._writer = csv.writer(self._file)
    self._writer.writerow(COLUMNS)

  def add(self, sample: Sample) -> None:
    """Appends a sample."""
    self._writer.writerow(dataclasses.astuple(sample))
    self._file.flush()

  def close(self) -> None:
    """Closes the file."""
    self._file.close()


def read(path: str) -> list[Sample]:
  """Returns the samples of a file; a last line that is cut off is left out."""
  samples = []
  with open(path, newline='') as f:
    for row in csv.DictReader(f):
      if None not in row.values():
        samples.append(Sample(**{n: _TYPES[str(t)](row[n]) for n, t in COLUMNS.items()}))
  return samples
