"""Samples the resource use of each process of a run from /proc into a CSV file."""

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
    restart_count: number of earlier processes of the node.
    pid: process id.
    age: seconds since the drill first saw the process.
    own_mib: private memory that the process has written; the end of another process does not change it.
    pss_mib: all memory, with the process's share of shared pages.
    descriptors: number of open descriptors.
    threads: number of threads.
    cpu_seconds: CPU seconds of all threads so far.
  """

  seconds: float
  node: str
  restart_count: int
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
  process: psutil.Process, node: str, restart_count: int, seconds: float, age: float
) -> Sample | None:
  """Returns a sample of a process; None if it has ended.

  Args:
    process: the process.
    node: name of its node.
    restart_count: number of earlier processes of the node.
    seconds: seconds since the drill began.
    age: seconds since the process was first seen.
  """
  try:
    with open(f'/proc/{process.pid}/{ROLLUP}') as f:
      memory = rollup(f)
    used = process.cpu_times()
    return Sample(
      seconds=round(seconds, 1),
      node=node,
      restart_count=restart_count,
      pid=process.pid,
      age=round(age, 1),
      own_mib=round(memory['Private_Dirty'] * MIB_OF_KIB, 2),
      pss_mib=round(memory['Pss'] * MIB_OF_KIB, 2),
      descriptors=len(os.listdir(f'/proc/{process.pid}/fd')),
      threads=process.num_threads(),
      cpu_seconds=round(used.user + used.system, 2),
    )
  except (OSError, KeyError, psutil.Error):  # An ending process loses its memory, then its files.
    return None


def rollup(lines: IO[str]) -> dict[str, int]:
  """Returns the figures of /proc/PID/smaps_rollup, in KiB, by name."""
  words = (line.split() for line in lines)
  return {w[0][:-1]: int(w[1]) for w in words if len(w) == 3 and w[2] == 'kB'}


class Recorder:
  """Appends samples to a CSV file; writes each one whole and immediately."""

  def __init__(self, path: str):
    """Creates the file.

    Args:
      path: path of a new file.
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
  """Returns the samples of a file; skips a truncated last line."""
  samples = []
  with open(path, newline='') as f:
    for row in csv.DictReader(f):
      if None not in row.values():
        samples.append(Sample(**{n: _TYPES[str(t)](row[n]) for n, t in COLUMNS.items()}))
  return samples
