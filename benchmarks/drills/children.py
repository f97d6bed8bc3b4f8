"""Drill: processes started by a node's environments end with the node, however it ends."""

from __future__ import annotations

import os
import time
from collections.abc import Set

import psutil

from benchmarks.drills import family
from benchmarks.drills.checks import Checks
from benchmarks.drills.subject import Subject
from benchmarks.running import ROOT

LEAVE_SECONDS = 10.0


def of_mark(mark: str) -> dict[int, int]:
  """Returns the parent ids of all children with a mark, by child id."""
  command = family.child_command(mark)
  found = {}
  for process in psutil.process_iter(['cmdline', 'ppid', 'status']):
    if process.info['cmdline'] == command and process.info['status'] != psutil.STATUS_ZOMBIE:
      found[process.pid] = process.info['ppid']
  return found


def left_of(mark: str, pids: Set[int]) -> set[int]:
  """Returns the children that are still alive after the time allowed for their exit."""
  end = time.monotonic() + LEAVE_SECONDS
  while (left := pids & of_mark(mark).keys()) and time.monotonic() < end:
    time.sleep(0.2)
  return left


def end_with_their_node(directory: str, checks: Checks) -> None:
  """Kills an actor, stops the program, kills a launcher; checks that no child survives.

  Ends surviving children.

  Args:
    directory: an existing directory.
    checks: collects the results.
  """
  mark = os.path.join(directory, 'mark')
  open(mark, 'w').close()
  try:
    for ending in ('SIGTERM of the launcher', 'kill -9 of the launcher'):
      inside = os.path.join(directory, ending.split()[0])
      os.mkdir(inside)
      env = os.path.join(ROOT, 'benchmarks', 'drills', 'family.py:make')
      with Subject(inside, checks, f'--env={env}', f'--env_options=mark={mark}') as subject:
        subject.begin()
        _kill_actor(subject, mark)
        children = of_mark(mark)
        nodes = set(subject.pids().values())
        if ending.startswith('SIGTERM'):
          subject.stop()
        else:
          subject.program.launcher.kill()
        of_nodes = {child for child, parent in children.items() if parent in nodes}
        for whose, those in (
          ('of nodes', of_nodes),
          # The launcher makes an environment before it starts a node.
          ('of the launcher', children.keys() - of_nodes),
        ):
          left = left_of(mark, those)
          checks.add(
            not left, f'{ending}: of {len(those)} children {whose} none is left (left: {left})'
          )
      _end(mark)
  finally:
    _end(mark)


def _kill_actor(subject: Subject, mark: str) -> None:
  actor = subject.pids()['actor-0']
  before = {pid for pid, parent in of_mark(mark).items() if parent == actor}
  subject.kill('actor-0')
  left = left_of(mark, before)
  subject.checks.add(
    bool(before) and not left,
    f'kill -9 of actor-0: of its {len(before)} children none is left (left: {left})',
  )
  again = [pid for pid, parent in of_mark(mark).items() if parent == subject.pids()['actor-0']]
  subject.checks.add(
    len(again) == len(before), f'after its restart it has as many children ({len(again)})'
  )


def _end(mark: str) -> None:
  for pid in of_mark(mark):
    process = psutil.Process(pid)
    if process.cmdline() == family.child_command(mark):
      process.kill()
