"""Drills: processes are stopped and continued by SIGSTOP and SIGCONT, as when a machine sleeps."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import psutil

from benchmarks.drills.checks import Checks
from benchmarks.drills.subject import Subject

NODE_TIMEOUT_SECONDS = 15.0
SHORT_SECONDS = 6.0
LONG_SECONDS = 25.0
# Time within which a mistaken kill would follow.
AFTER_SECONDS = 3.0


class Stop(NamedTuple):
  """Processes that are stopped together.

  Attributes:
    nodes: their names.
    seconds: for how long; None until each node is replaced.
    launcher: whether the launcher is stopped too.
  """

  nodes: Sequence[str]
  seconds: float | None
  launcher: bool = False

  def __str__(self) -> str:
    nodes = ', '.join(self.nodes)
    what = 'the launcher' + (' and all nodes' if nodes else '') if self.launcher else nodes
    long = 'until it is started again' if self.seconds is None else f'for {self.seconds:g} s'
    return f'{what}, stopped {long}'


def each_node(nodes: Sequence[str]) -> Iterator[Stop]:
  """Each node for less than --node_timeout (no effect), then for longer (the node restarts)."""
  yield from (Stop([node], SHORT_SECONDS) for node in nodes)
  yield from (Stop([node], None) for node in nodes)


def whole_program(nodes: Sequence[str]) -> Iterator[Stop]:
  """The launcher, and then the launcher and all nodes, for longer than --node_timeout."""
  yield Stop([], LONG_SECONDS, launcher=True)
  yield Stop(nodes, LONG_SECONDS, launcher=True)


@contextlib.contextmanager
def stopped(victims: Sequence[psutil.Process]) -> Iterator[None]:
  """Stops processes during the block."""
  try:
    for victim in victims:
      with contextlib.suppress(psutil.NoSuchProcess):
        victim.suspend()
    yield
  finally:
    for victim in victims:
      with contextlib.suppress(psutil.NoSuchProcess):
        victim.resume()


def stop_and_continue(
  directory: str, checks: Checks, stops: Callable[[Sequence[str]], Iterable[Stop]]
) -> None:
  """Stops processes; only a node that is stopped for longer than --node_timeout is ended.

  Args:
    directory: an existing directory.
    checks: collects the results.
    stops: takes the names of the nodes and yields what to stop, one after the other.
  """
  with Subject(directory, checks, f'--node_timeout={NODE_TIMEOUT_SECONDS:g}') as subject:
    names = sorted(subject.begin())
    # The launcher continues first, and judges first.
    launcher = [psutil.Process(subject.program.launcher.pid)]
    for stop in stops(names):
      pids = subject.pids()
      victims = [subject.process(node) for node in stop.nodes]
      with stopped((launcher if stop.launcher else []) + victims):
        _wait(subject, stop, pids)
      time.sleep(AFTER_SECONDS)
      ended = stop.nodes if stop.seconds is None else ()
      subject.unharmed({n: pid for n, pid in pids.items() if n not in ended}, str(stop))
      for node in stop.nodes or names:
        subject.works(node)
    subject.stop()


def _wait(subject: Subject, stop: Stop, pids: dict[str, int]) -> None:
  if stop.seconds is not None:
    time.sleep(stop.seconds)
    return
  for node in stop.nodes:
    replaced = functools.partial(subject.replaced, node, pids[node])
    subject.wait(replaced, f'{node} is started again')
