"""A program under launch.py, observed from outside by a drill or a test."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import psutil

from benchmarks import own
from rundir import checkpoints, curves
from rundir.roles import LEARNER
from sweeps.commands import ROOT

T = TypeVar('T')


def processes(run_dir: str) -> list[psutil.Process]:
  """Returns every process whose command names a run directory."""
  found = []
  for process in psutil.process_iter(['cmdline']):
    if any(run_dir in part for part in process.info['cmdline'] or ()):
      found.append(process)
  return found


class RunningProgram:
  """Starts launch.py and follows it by its processes and its run directory."""

  def __init__(
    self,
    run_dir: str,
    *flags: str,
    deadline: float = 600.0,
    environment: Mapping[str, str] | None = None,
    output: str = '',
    own_session: bool = False,
  ):
    """Starts launch.py.

    Args:
      run_dir: run directory; a flag must name it as well.
      *flags: flags for launch.py.
      deadline: timeout of `wait_until` in seconds.
      environment: variables to set for launch.py.
      output: an existing directory for `stdout.txt` and `stderr.txt`; '' for temporary files.
      own_session: whether to start a new session, which Ctrl-C and the terminal's end do not reach.
    """
    self.run_dir = run_dir
    self._deadline = deadline
    # Files rather than pipes: a full pipe would block a long run.
    self._output, self._errors = (
      open(os.path.join(output, name), 'w+') if output else tempfile.TemporaryFile('w+')  # noqa: SIM115
      for name in ('stdout.txt', 'stderr.txt')
    )
    self.launcher = subprocess.Popen(
      [sys.executable, 'launch.py', *flags],
      cwd=ROOT,
      env={**os.environ, **(environment or {})},
      stdout=self._output,
      stderr=self._errors,
      text=True,
      stdin=subprocess.DEVNULL,
      start_new_session=own_session,
    )

  def nodes(self) -> dict[str, psutil.Process]:
    """Returns the processes of the nodes, by names such as 'actor-0'."""
    try:
      return own.nodes(psutil.Process(self.launcher.pid), self.run_dir)
    except psutil.NoSuchProcess:
      return {}

  def wait_until(self, condition: Callable[[], T], what: str) -> T:
    """Waits until `condition` returns a true value; returns that value.

    Raises:
      AssertionError: the program ended first, or the deadline passed.
    """
    end = time.monotonic() + self._deadline
    while not (result := condition()):
      if self.launcher.poll() is not None:
        raise AssertionError(f'the program ended before {what}: {self.end()[2]}')
      assert time.monotonic() < end, f'waited in vain: {what}'
      time.sleep(0.05)
    return result

  def learner_steps(self) -> float:
    """Returns the learner steps of the last report; 0 before the first report."""
    learners = curves.nodes(self.run_dir, LEARNER)[:1]
    rows = [row for node in learners for row in curves.read(self.run_dir, node, 'learner_steps')]
    return rows[-1][0] if rows else 0.0

  def wait_for_progress(self) -> None:
    """Waits for two further reports of the learner."""
    for _ in range(2):
      before = self.learner_steps()
      self.wait_until(lambda n=before: self.learner_steps() not in (n, 0), 'learning')  # type: ignore

  def wait_for_restart(self, name: str, victim: psutil.Process) -> None:
    """Waits until a node is another process than `victim`."""
    self.wait_until(
      lambda: self.nodes().get(name, victim).pid != victim.pid, f'{name} has restarted'
    )

  def checkpoint_counts(self) -> dict[str, int]:
    """Returns the counters of the newest checkpoint; {} before the first checkpoint."""
    checkpoint = checkpoints.newest(checkpoints.directory(self.run_dir))
    return checkpoint.counts if checkpoint else {}

  def printed(self) -> str:
    """Returns what launch.py has written to stdout until now."""
    with open(f'/proc/self/fd/{self._output.fileno()}') as f:
      return f.read()

  def end(self, timeout: float = 600.0) -> tuple[int, str, str]:
    """Waits for the end; returns exit code, stdout and stderr."""
    code = self.launcher.wait(timeout)
    texts = []
    for file in (self._output, self._errors):
      file.seek(0)
      texts.append(file.read())
    return code, texts[0], texts[1]

  def kill(self) -> None:
    """Kills the launcher, if it still runs; its nodes end with it. Closes the output.

    Do not call `end` afterwards.
    """
    self.launcher.kill()
    self.launcher.wait()
    self._output.close()
    self._errors.close()
