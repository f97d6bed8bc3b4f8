"""Processes by their ids."""

import psutil


def runs(pid):
  """Whether a process runs. One that has ended may be a zombie for as long as its parent likes."""
  try:
    return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
  except psutil.NoSuchProcess:
    return False
