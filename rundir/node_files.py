"""The files of each node in a run directory: its output and its measurements, both in `logs/`."""

from __future__ import annotations

import glob
import os

LOG, CSV = '.log', '.csv'


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
  paths = glob.glob(os.path.join(glob.escape(directory(run_dir)), f'*{suffix}'))
  return dict(sorted((_node(path.removesuffix(suffix)), path) for path in paths))


def _path(run_dir: str, node: str, suffix: str) -> str:
  return os.path.join(directory(run_dir), node.replace('/', '-') + suffix)


def _node(path: str) -> str:
  return '/'.join(os.path.basename(path).rsplit('-', 1))
