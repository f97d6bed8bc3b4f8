"""A slow Catch with a child process per batch, on its own like a simulator's; `close` does not end it.

--env=benchmarks/drills/family.py:make --env_options=mark=FILE
"""

from __future__ import annotations

import subprocess

from benchmarks.drills.slow_catch import SlowCatch


def child_command(mark: str) -> list[str]:
  """Returns the command of the children, which do nothing.

  Args:
    mark: a file whose name identifies the children.
  """
  return ['tail', '-f', mark]


class Family(SlowCatch):
  """A batch of games with a child process."""

  def __init__(self, num_envs: int, seed: int, step_seconds: float, mark: str):
    super().__init__(num_envs, seed, step_seconds)
    if mark:
      self._child = subprocess.Popen(
        child_command(mark),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={},
        start_new_session=True,
      )


def make(
  task: str, num_envs: int, seed: int, *, step_seconds: float = 0.05, mark: str = ''
) -> Family:
  """Makes N games; see `slow_catch.make`, and `child_command` for `mark` ('': no child)."""
  return Family(num_envs, seed, step_seconds, mark)
