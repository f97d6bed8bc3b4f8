"""The files of each node in a run directory: its output and its measurements, both in `logs/`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from rundir import reading

LOG, CSV = '.log', '.csv'
_NAME = re.compile(r'[^/\x00-\x1f]{1,60}/[0-9]{1,9}')  # Its files have names of at most 255 bytes.


def is_name(text: str) -> bool:
  """Returns whether a text, perhaps from a damaged file, is the name of a node such as 'actor/3'."""
  return _NAME.fullmatch(text) is not None


def group(node: str) -> str:
  """Returns the group of a node such as 'actor/3'."""
  return node.partition('/')[0]


def by_group(nodes: Iterable[str]) -> dict[str, list[str]]:
  """Returns the nodes of each group; groups and nodes are in the order of `nodes`."""
  groups: dict[str, list[str]] = {}
  for node in nodes:
    groups.setdefault(group(node), []).append(node)
  return groups


def directory(run_dir: str) -> str:
  """Returns the directory of these files."""
  return os.path.join(run_dir, 'logs')


def log_path(run_dir: str, node: str) -> str:
  """Returns the file with the output of a node such as 'actor/3'."""
  return _path(run_dir, node, LOG)


def csv_path(run_dir: str, node: str) -> str:
  """Returns the CSV file with the measurements of a node such as 'actor/3'."""
  return _path(run_dir, node, CSV)


def find(run_dir: str, suffix: str) -> dict[str, str]:
  """Returns the existing files of one kind, {node: path}, in the order of the nodes' names.

  Args:
    run_dir: the run directory.
    suffix: LOG or CSV.
  """
  folder = directory(run_dir)
  names = [name for name in reading.names(folder) if name.endswith(suffix) and name[0] != '.']
  return dict(
    sorted((_node(name.removesuffix(suffix)), os.path.join(folder, name)) for name in names)
  )


def _path(run_dir: str, node: str, suffix: str) -> str:
  return os.path.join(directory(run_dir), node.replace('/', '-') + suffix)


def _node(stem: str) -> str:
  return '/'.join(stem.rsplit('-', 1))
