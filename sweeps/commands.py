"""Commands of this repository as processes beside each other: launch.py, evaluate.py."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from rundir import final_params, run_directory, run_end

ROOT = pathlib.Path(__file__).parent.parent
# What launch.py prints last if a failed run can be resumed; the line before says why it failed.
_ADVICE = 'to resume: '


class Command:
  """A Python command in a session of its own, which Ctrl-C in a terminal does not reach."""

  def __init__(
    self,
    words: Sequence[str],
    log: str,
    cwd: str | None = str(ROOT),
  ):
    """Starts the command.

    Args:
      words: of the command, after the interpreter.
      log: the file that its output is appended to.
      cwd: its working directory; None for that of this process.
    """
    self.log = log
    self._began = time.monotonic()
    os.makedirs(os.path.dirname(log), exist_ok=True)
    with open(log, 'ab') as output:
      self._process = subprocess.Popen(
        [sys.executable, *words],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
      )
    self.pid = self._process.pid

  def exit_code(self) -> int | None:
    """Returns the exit code; None while the command runs."""
    return self._process.poll()

  def seconds(self) -> float:
    """Returns the seconds since the start."""
    return time.monotonic() - self._began

  def last_words(self) -> str:
    """Returns the last line of the output."""
    return last_line(self.log)

  def stop(self) -> None:
    """Sends SIGTERM if the command still runs; launch.py then writes a checkpoint."""
    if self._process.poll() is None:
      self._process.terminate()

  def kill(self) -> None:
    """Kills the command if it still runs."""
    if self._process.poll() is None:
      self._process.kill()

  def wait(self) -> int:
    """Waits until the command ends; returns its exit code."""
    return self._process.wait()


@contextlib.contextmanager
def started(words: Sequence[str], log: str) -> Iterator[Command]:
  """Starts a command; if the block is left early, stops it and waits.

  Leaving the block a second time kills the command.
  """
  command = Command(words, log)
  try:
    yield command
  finally:
    command.stop()
    try:
      command.wait()
    except BaseException:
      command.kill()
      raise


def last_line(path: str) -> str:
  """Returns the last line of an output file that is not empty, without advice on how to resume."""
  with open(path, errors='replace') as f:
    lines = [line.strip() for line in f]
  lines = [line for line in lines if line and not line.startswith(_ADVICE)]
  return lines[-1] if lines else 'it wrote nothing'


def trained(run_dir: str) -> bool:
  """Returns whether a run has ended with final parameters."""
  ended = run_end.read_summary(run_dir) is not None
  return ended and os.path.exists(final_params.path(run_dir))


def resumable(run_dir: str) -> bool:
  """Returns whether launch.py can resume a run."""
  return bool(run_directory.program_of(run_dir)) and run_directory.has_checkpoints(run_dir)


def unused(run_dir: str) -> bool:
  """Returns whether a new run can have a directory: there is none, or a refused launch.py left it."""
  return not os.path.exists(run_dir) or not set(os.listdir(run_dir)) - run_directory.UNUSED


def set_aside(run_dir: str, *files: str) -> str:
  """Moves a run directory, and files that belong to it, to a new directory; returns its path."""
  number = 1
  while os.path.exists(f'{run_dir}.set-aside-{number}'):
    number += 1
  aside = f'{run_dir}.set-aside-{number}'
  os.makedirs(aside)
  for path in (run_dir, *files):
    with contextlib.suppress(FileNotFoundError):
      os.rename(path, os.path.join(aside, os.path.basename(path)))
  return aside


def target(run_dir: str, words: Sequence[str], always: Sequence[str] = ()) -> list[str]:
  """Returns the flags of launch.py that resume a run, or start it if there is none.

  Args:
    run_dir: its directory.
    words: flags that a run records.
    always: flags that it does not record.
  """
  if run_directory.program_of(run_dir):
    return [f'--resume={run_dir}', *always]
  return [*words, *always, f'--run_dir={run_dir}']
