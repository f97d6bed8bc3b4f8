"""The processes of a single run: those that its launcher started."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Sequence

import psutil


def nodes(launcher: psutil.Process, run_dir: str) -> dict[str, psutil.Process]:
  """Returns the processes of the nodes, by names such as 'actor-0'.

  A node is a descendant of the launcher whose command names a payload of the run. A fork of a node has
  the same command and is excluded.

  Args:
    launcher: launcher of the run.
    run_dir: run directory, as given by --run_dir.
  """
  found: dict[str, psutil.Process] = {}
  with contextlib.suppress(psutil.NoSuchProcess):
    for process in launcher.children(recursive=True):
      with contextlib.suppress(psutil.NoSuchProcess):
        name = node_name(process.cmdline(), run_dir)
        parent = process.parent()
        if name and not (parent and node_name(parent.cmdline(), run_dir)):
          found[name] = process
  return found


def node_name(command: Sequence[str], run_dir: str) -> str:
  """Returns the name of the node that runs a command, such as 'actor-0'; '' if there is none."""
  payloads = os.path.realpath(os.path.join(run_dir, 'nodes'))
  for part in command:
    if part.endswith('.pkl') and os.path.realpath(os.path.dirname(part)) == payloads:
      return pathlib.Path(part).stem
  return ''


def group(node: str) -> str:
  """Returns the group of a node: 'actor' for 'actor-0', 'launcher' for 'launcher'."""
  return node.rpartition('-')[0] or node


def is_of(process: psutil.Process, run_dir: str) -> bool:
  """Returns whether a process is the launcher or a node of a run; a reader of its log is not."""
  try:
    command = process.cmdline()
  except psutil.Error:
    return False
  return bool(node_name(command, run_dir)) or 'launch.py' in command
